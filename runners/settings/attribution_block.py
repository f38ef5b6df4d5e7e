"""Reads the settings block ``attribution_driven_credit_assignment`` of AgentEvolver's documentation.

Invariant: every key of it becomes a setting of ours or is refused with one line; none is passed over.
"""

from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any

from algorithms.adca import ADCA
from runners.command_line.errors import UserError

BLOCK, INNER = "attribution_driven_credit_assignment", "adca_grpo"
_TO_JUDGE = {
    "model": "model",
    "concurrent": "concurrent",
    "api_max_retries": "api_max_retries",
    "llm_evaluation_log_dir": "log_dir",
}
_INNER = {f.name for f in fields(ADCA)} - {"enable", "group"}
_CHOICES = {f.name for f in fields(ADCA) if isinstance(f.default, StrEnum)}
"""Settings that their authors' code reads in any case."""
_OUTER = {"enable", "skip_type", "enable_adca_metric", "overall_score_source", *_TO_JUDGE}
_REFUSED = {
    "prm_steps": "say prm_epoch, in passes over the training tasks",
    "model_name": f"say model, beside {INNER}",
    "alpha_mode": "say alpha_steps and alpha_min of our adca, 0 steps for a constant alpha",
}


def adopted(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a file with the block, if there is one, as settings of ours. Raises UserError."""
    rest = {key: value for key, value in values.items() if key != BLOCK}
    if BLOCK not in values:
        return rest
    if rest.get("algo", "adca") != "adca":
        raise UserError(f"{BLOCK} sets up the algorithm adca, and the file says algo: {rest['algo']}: leave one out")
    block = _mapping(values[BLOCK], BLOCK)
    adca: dict[str, Any] = {}
    judge: dict[str, Any] = {"kind": "endpoint"}
    inner = _mapping(block.pop(INNER, {}), f"{BLOCK}.{INNER}")
    if block.pop("evaluation_type", "api") != "api":
        raise UserError(f'{BLOCK}.evaluation_type can be "api" only: for other judges say judge: {{kind: …}} instead')
    for place, keys, known in ((BLOCK, block, _OUTER), (f"{BLOCK}.{INNER}", inner, _INNER)):
        for key, value in keys.items():
            if key not in known:
                hint = _REFUSED.get(key, f"known are {', '.join(sorted(known))}")
                raise UserError(f"{place}.{key} does nothing here: {hint}")
            value = value.lower() if key in _CHOICES and isinstance(value, str) else value
            if key in _TO_JUDGE:
                judge[_TO_JUDGE[key]] = value
            elif adca.setdefault(key, value) != value:
                raise UserError(f"{place}.{key} is set twice, and differently: leave one out")
    for name, ours in (("adca", adca), ("judge", judge)):
        given = _mapping(rest.get(name) or {}, name)
        if twice := sorted(key for key in given if key in ours and given[key] != ours[key] and key != "kind"):
            raise UserError(f"{name}.{twice[0]} is set beside {BLOCK}, and differently: leave one out")
        rest[name] = ours | given
    return {"algo": "adca"} | rest


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UserError(f"{where} must hold settings by name")
    return dict(value)
