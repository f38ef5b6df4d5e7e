"""What τ²'s package has for the telecom domain: its tickets, its policies, and a world in which nothing happened yet.

Invariant: importing it leaves the environment variables as they were, and it logs nothing.
"""

import copy
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

from agent_envs.adapters.tau2.config import Policy
from agent_envs.core import SettingsError

DOMAIN = "tau2.domains.telecom"


@contextmanager
def _kept_variables() -> Iterator[None]:
    """τ² reads the variables of a file `.env` when it is imported."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def module(name: str) -> ModuleType:
    """A module of the package. Raises SettingsError where it is missing."""
    try:
        with _kept_variables():
            from loguru import logger

            logger.disable("tau2")
            return import_module(name)
    except ImportError as error:
        raise SettingsError(f"tau2: {error}: pip install 'turnwise[tau2]'") from error


@lru_cache(1)
def tickets() -> Mapping[str, Any]:
    """Every ticket (`tau2.data_model.tasks.Task`, not parsed yet) by its id. Raises SettingsError."""
    path = module(f"{DOMAIN}.utils").TELECOM_TASK_SET_PATH
    return {one["id"]: one for one in json.loads(path.read_text("utf-8"))}


@lru_cache(1)
def splits() -> Mapping[str, tuple[str, ...]]:
    """Ids of tickets by τ²'s names of splits. Raises SettingsError."""
    path = module(f"{DOMAIN}.utils").TELECOM_DATA_DIR / "split_tasks.json"
    return {name: tuple(ids) for name, ids in json.loads(path.read_text("utf-8")).items()}


def ticket(name: str) -> Any:
    """The ticket of that id, parsed."""
    return module("tau2.data_model.tasks").Task.model_validate(tickets()[name])


def policy(kind: Policy) -> str:
    """The text of a policy, for agents that have the customer's telephone in hand. Raises SettingsError."""
    return "" if kind is Policy.NONE else str(_untouched(kind).policy)


def world() -> Any:
    """A new `TelecomEnvironment` in solo mode. Raises SettingsError."""
    return copy.deepcopy(_untouched(Policy.MANUAL))


@lru_cache(2)
def _untouched(kind: Policy) -> Any:
    made = module(f"{DOMAIN}.environment").get_environment(solo_mode=True, policy_type=str(kind))
    # Of the class, and breaking one telephone's VPN would change it for all.
    made.user_tools.default_vpn_details = copy.deepcopy(made.user_tools.default_vpn_details)
    return made
