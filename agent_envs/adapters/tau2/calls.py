"""The tools of τ² telecom as actions: ``refuel_data(C1001, L1002, 2.0)``.

Invariant: a text becomes arguments of the kinds that the tool takes, or is refused; nothing is evaluated.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from agent_envs.actions import ActionError, Args, Grammar, Verb

DONE = "done"
"""Ends the episode, as τ²'s solo agent does."""
TRANSFER = "transfer_to_human_agents"
_TOOLS = """
get_customer_by_phone(phone_number)
get_customer_by_id(customer_id)
get_customer_by_name(full_name, dob)
get_details_by_id(id)
get_bills_for_customer(customer_id, [limit])
get_data_usage(customer_id, line_id)
send_payment_request(customer_id, bill_id)
suspend_line(customer_id, line_id, reason)
resume_line(customer_id, line_id)
enable_roaming(customer_id, line_id)
disable_roaming(customer_id, line_id)
refuel_data(customer_id, line_id, gb_amount)
transfer_to_human_agents(summary)
check_status_bar()
check_network_status()
check_network_mode_preference()
set_network_mode_preference(mode)
run_speed_test()
toggle_airplane_mode()
check_sim_status()
reseat_sim_card()
toggle_data()
toggle_roaming()
check_data_restriction_status()
toggle_data_saver_mode()
check_apn_settings()
set_apn_settings(apn_settings)
reset_apn_settings()
check_wifi_status()
toggle_wifi()
check_wifi_calling_status()
toggle_wifi_calling()
check_vpn_status()
connect_vpn()
disconnect_vpn()
check_installed_apps()
check_app_status(app_name)
check_app_permissions(app_name)
grant_app_permission(app_name, permission)
can_send_mms()
reboot_device()
check_payment_request()
make_payment()
"""
"""Those of version 26.3, in its order: the company's first, then the telephone's."""


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError(text)
    return value


_KINDS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "limit": (int, "a whole number"),
    "gb_amount": (_finite, "a number"),
    "apn_settings": (_object, "a JSON object"),
}
"""Parameters that are no texts."""


def _read(table: str) -> dict[str, tuple[tuple[str, bool], ...]]:
    """Name of a tool → its parameters, each with whether it is needed."""
    result = {}
    for line in table.split("\n")[1:-1]:
        name, _, inside = line.removesuffix(")").partition("(")
        names = inside.split(", ") if inside else []
        result[name] = tuple((one.strip("[]"), not one.startswith("[")) for one in names)
    return result


PARAMETERS = _read(_TOOLS)


def _verb(name: str) -> Verb:
    wanted = PARAMETERS.get(name, ())
    usage = ", ".join(one if needed else f"[{one}]" for one, needed in wanted)
    return Verb(name, usage, Args.REQUIRED if wanted else Args.NONE)


GRAMMAR = Grammar(*map(_verb, (*PARAMETERS, DONE)))


def arguments(name: str, text: str) -> dict[str, Any]:
    """The arguments of a call, written in their order with commas between; a last text may have commas in it.

    Raises ActionError where one is missing, too many or of another kind.
    """
    wanted = PARAMETERS[name]
    given = [one.strip() for one in text.split(",", max(0, len(wanted) - 1))] if text else []
    if len(given) < sum(needed for _, needed in wanted):
        raise ActionError(f"{name} takes {', '.join(one for one, _ in wanted)}, with commas between")
    return {one: _value(name, one, value) for (one, _), value in zip(wanted, given, strict=False)}


def _value(tool: str, name: str, text: str) -> Any:
    if name not in _KINDS:
        return text
    read, kind = _KINDS[name]
    try:
        return read(text)
    except (ValueError, RecursionError):
        raise ActionError(f"{name} of {tool} must be {kind}") from None


def written(name: str, **values: Any) -> str:
    """The text of these arguments."""
    return ", ".join(str(values[one]) for one, _ in PARAMETERS[name] if one in values)
