"""What to call next for a ticket, read from the telephone and the company's data and not from what was seen.

From any state from which the ticket can still be closed it repairs one thing after the other until τ² is content.
"""

from collections.abc import Iterator

from agent_envs.adapters.tau2.calls import DONE, TRANSFER, written
from agent_envs.adapters.tau2.case import Case
from agent_envs.adapters.tau2.package import DOMAIN, module

WANTED_MODE = "4g_5g_preferred"
APP, PERMISSIONS = "messaging", ("sms", "storage")


def advice(case: Case) -> tuple[str, str]:
    """The name of the tool that is called next, and the text of its arguments."""
    if all(case.met()):
        return DONE, ""
    return next(_repairs(case), (DONE, ""))


def _repairs(case: Case) -> Iterator[tuple[str, str]]:
    """What is wrong now, each as the call that mends it, in an order in which it can be done."""
    phone, around, line = case.world.user_tools.device, case.world.user_tools.surroundings, case.line
    suspended = line.status.value == "Suspended"
    if _hopeless(case, suspended):
        if not any(name == TRANSFER for name, _ in case.calls):
            yield TRANSFER, "I cannot fix the issue."
        return
    if phone.airplane_mode:
        yield "toggle_airplane_mode", ""
    if phone.sim_card_missing:
        yield "reseat_sim_card", ""
    yield from _payments(case, suspended)
    if phone.active_apn_settings.reset_at_reboot:
        yield "reboot_device", ""
    if phone.active_apn_settings.apn_name.value != "internet" or phone.active_apn_settings.mmsc_url is None:
        yield "reset_apn_settings", ""
    if phone.network_mode_preference.value != WANTED_MODE:
        yield "set_network_mode_preference", WANTED_MODE
    if not phone.data_enabled:
        yield "toggle_data", ""
    if around.is_abroad and not phone.roaming_enabled:
        yield "toggle_roaming", ""
    if around.is_abroad and not line.roaming_enabled:
        yield "enable_roaming", written("enable_roaming", **case.ours)
    if (missing := _wanted_data(case) - line.data_refueling_gb) > 0:
        yield "refuel_data", written("refuel_data", **case.ours, gb_amount=missing)
    if phone.data_saver_mode:
        yield "toggle_data_saver_mode", ""
    if phone.vpn_connected:
        yield "disconnect_vpn", ""
    if phone.wifi_calling_enabled and phone.wifi_calling_mms_over_wifi:
        yield "toggle_wifi_calling", ""
    for one in PERMISSIONS:
        if not getattr(phone.app_statuses[APP].permissions, one):
            yield "grant_app_permission", written("grant_app_permission", app_name=APP, permission=one)
    if phone.network_connection_status.value != "connected":
        yield "reboot_device", ""


def _hopeless(case: Case, suspended: bool) -> bool:
    """Whether τ²'s policy leaves nothing but another human: the SIM card is locked, or the contract has ended."""
    locked, ends = case.world.user_tools.device.sim_card_status.value.startswith("locked"), case.line.contract_end_date
    return bool(locked or (suspended and ends and ends < module(f"{DOMAIN}.utils").get_today()))


def _payments(case: Case, suspended: bool) -> Iterator[tuple[str, str]]:
    """Calls that have the overdue bill paid and the line resumed."""
    if case.world.user_tools.surroundings.payment_request is not None:
        yield "make_payment", ""
    for bill in case.bills:
        if bill.customer_id == case.ours["customer_id"] and bill.status.value == "Overdue":
            yield "send_payment_request", written("send_payment_request", **case.ours, bill_id=bill.bill_id)
    if suspended:
        yield "resume_line", written("resume_line", **case.ours)


def _wanted_data(case: Case) -> float:
    """Gigabytes that the ticket wants to have been added; none where nothing is said of them and none are needed."""
    for one in case.ticket.evaluation_criteria.env_assertions or ():
        if one.func_name == "assert_data_refueling_amount":
            return float(one.arguments["expected_amount"])
    return 2.0 if case.world.user_tools.surroundings.mobile_data_usage_exceeded else 0.0
