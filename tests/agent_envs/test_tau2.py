"""τ² telecom: the contract, τ²'s own verdicts, an expert that closes every ticket, and traps of the package."""

import copy
import inspect
import os
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from env_packages import skip_without

from agent_envs.actions import ActionError, render
from agent_envs.adapters.tau2 import package
from agent_envs.adapters.tau2.calls import PARAMETERS, TRANSFER, arguments
from agent_envs.adapters.tau2.case import Case
from agent_envs.adapters.tau2.config import Policy, Tau2Config, Tickets
from agent_envs.adapters.tau2.env import Tau2Env
from agent_envs.adapters.tau2.package import DOMAIN, module, tickets, world
from agent_envs.contract.check import check_text_env
from agent_envs.contract.oracle import expert_succeeds
from agent_envs.core import SettingsError
from agent_envs.tools import as_turn

pytestmark = pytest.mark.adapters
OURS = {"customer_id": "C1001", "line_id": "L1002"}
REFUEL = ("refuel_data", {**OURS, "gb_amount": 2.0})


@pytest.fixture(autouse=True)
def _needs() -> None:
    skip_without("tau2")


def env_of(policy: Policy = Policy.NONE, tickets: Tickets = Tickets.FULL, max_turns: int = 50) -> Tau2Env:
    return Tau2Env(Tau2Config(policy, tickets, max_turns))


def ids(*parts: str) -> list[str]:
    return [name for name in tickets() if all(part in name for part in parts)]


@pytest.mark.parametrize("policy", list(Policy))
def test_it_keeps_the_contract(policy: Policy) -> None:
    check_text_env(lambda: env_of(policy, Tickets.BASE), tasks=2)


def test_the_splits_are_those_of_tau2() -> None:
    base, full = env_of(tickets=Tickets.BASE), env_of()
    assert [len(base.tasks(split)) for split in ("train", "valid", "test")] == [74, 20, 40]
    everything = [task.id for split in ("train", "valid", "test") for task in full.tasks(split)]
    assert len(everything) == len(set(everything)) == len(tickets()) == 2285


def test_the_table_of_tools_is_that_of_the_package() -> None:
    made = world()
    theirs = {}
    for kit in (made.tools, made.user_tools):
        for name in kit.get_tools():
            wanted = inspect.signature(getattr(kit, name)).parameters.values()
            theirs[name] = tuple((one.name, one.default is inspect.Parameter.empty) for one in wanted)
    assert theirs == PARAMETERS


def test_the_expert_closes_every_ticket_and_so_do_the_shipped_plans() -> None:
    env = env_of()
    for split in ("train", "valid", "test"):
        for task in env.tasks(split):
            env.reset(options={"task": task})
            assert expert_succeeds(env), task.id
            assert env.turn <= task.level + 2, "no detours"
    for name in tickets():
        case = Case(name)
        assert not all(case.met()), "nothing is solved at the beginning"
        for action in case.ticket.evaluation_criteria.actions:
            case.call(action.name, action.arguments)
        assert all(case.met()), name


def wander(env: Tau2Env, rng: np.random.Generator, most: int = 10) -> None:
    """Begins a ticket and makes a few calls at random, none of which ends it."""
    tasks = env.tasks("train")
    env.reset(options={"task": tasks[int(rng.integers(len(tasks)))]})
    for _ in range(int(rng.integers(most))):
        turns = [turn for turn in env.valid_turns() if "done" not in turn]
        env.step(turns[int(rng.integers(len(turns)))])


def test_the_expert_succeeds_after_anything_that_can_be_undone() -> None:
    env, rng = env_of(), np.random.default_rng(0)
    lost = 0
    for _ in range(200):
        wander(env, rng)
        refuelled = [name for name, _ in env._state.calls].count("refuel_data")
        if not expert_succeeds(env):
            lost += 1
            assert refuelled > 1, "only data that was added twice stays"
    assert lost < 10


def test_verdicts_are_those_of_tau2_and_its_own_replay() -> None:
    env, rng = env_of(), np.random.default_rng(1)
    verdicts = []
    for _ in range(150):
        wander(env, rng)
        for _ in range(int(rng.integers(14))):
            if not all(env._state.met()):
                env.step(env.expert())
        verdicts.append(all(env._state.met()))
        assert theirs(env._state) == float(verdicts[-1]), (env.task.id, env._state.calls)
    assert 30 < sum(verdicts) < 120, "both verdicts are among them"
    hopeless = Case(ids("lock_sim_card_pin")[0])
    assert (theirs(hopeless), all(hopeless.met())) == (0.0, False), "the assertion alone holds"
    hopeless.call(TRANSFER, {"summary": "in other words"})
    assert (theirs(hopeless), all(hopeless.met())) == (1.0, True)


def theirs(case: Case) -> float:
    """What τ²'s evaluators pay for the same calls."""
    messages, message = [], module("tau2.data_model.message")
    for number, (tool, values) in enumerate(case.calls):
        call = message.ToolCall(id=str(number), name=tool, arguments=dict(values), requestor="assistant")
        answer = Case(case.name, case.calls[:number]).call(tool, values)
        messages.append(message.AssistantMessage(role="assistant", content=None, tool_calls=[call]))
        messages.append(message.ToolMessage(id=str(number), role="tool", content=answer, requestor="assistant"))
    ask = module("tau2.evaluator.evaluator_env").EnvironmentEvaluator.calculate_reward

    def made(solo_mode: bool = False) -> Any:
        result = module(f"{DOMAIN}.environment").get_environment(solo_mode=solo_mode)
        result.user_tools.default_vpn_details = copy.deepcopy(result.user_tools.default_vpn_details)
        return result

    reward = ask(environment_constructor=made, task=case.ticket, full_trajectory=messages, solo_mode=True).reward
    if len(case.ticket.evaluation_criteria.reward_basis) > 1:
        acted = module("tau2.evaluator.evaluator_action").ActionEvaluator
        reward *= acted.calculate_reward(task=case.ticket, full_trajectory=messages).reward
    return float(reward)


def test_the_same_calls_give_the_same_answers_where_tau2_draws_ids() -> None:
    other = {"customer_id": "C1003", "line_id": "L1009", "gb_amount": 1.0}  # who has no draft of a bill
    name = ids("data_usage_exceeded")[0]
    one, two = (Case(name, [("refuel_data", other)]) for _ in range(2))
    for call in (("get_bills_for_customer", {"customer_id": "C1003"}), ("get_details_by_id", {"id": "B9007"})):
        assert one.call(*call) == two.call(*call) and "B9007" in one.call(*call)
    drawn = []
    for _ in range(2):
        made = world()
        made.tools.use_tool("refuel_data", **other)
        drawn.append(made.tools.db.bills[-1].bill_id)
    assert drawn[0] != drawn[1], "the package draws them"


def test_a_broken_telephone_breaks_no_other() -> None:
    shared = module(f"{DOMAIN}.user_tools").TelecomUserTools.default_vpn_details
    before = copy.deepcopy(shared)
    broken = Case(ids("bad_vpn")[0])
    assert "poor" in broken.call("check_vpn_status", {})
    other = Case(ids("lock_sim_card_pin")[0], [("connect_vpn", {})])
    assert "excellent" in other.call("check_vpn_status", {}) and shared == before


def test_a_case_is_copied_and_pickled_as_it_stands() -> None:
    case = Case(ids("data_usage_exceeded")[0], [REFUEL, ("toggle_data", {})])
    twins: Sequence[Case] = (copy.deepcopy(case), pickle.loads(pickle.dumps(case)))
    state = case.world.tools.get_db_hash(), case.world.user_tools.get_db_hash()
    for twin in twins:
        assert (twin.world.tools.get_db_hash(), twin.world.user_tools.get_db_hash()) == state
        twin.call("toggle_airplane_mode", {})
        assert (twin.name, len(twin.calls), len(case.calls)) == (case.name, 3, 2)
    assert (case.world.tools.get_db_hash(), case.world.user_tools.get_db_hash()) == state


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("refuel_data", "C1001, L1002, 2", {**OURS, "gb_amount": 2.0}),
        ("get_bills_for_customer", "C1001", {"customer_id": "C1001"}),
        ("get_bills_for_customer", "C1001, 3", {"customer_id": "C1001", "limit": 3}),
        ("suspend_line", "C1001, L1002, lost, or stolen", {**OURS, "reason": "lost, or stolen"}),
        ("set_apn_settings", '{"mms_port": 1, "a": ""}', {"apn_settings": {"mms_port": 1, "a": ""}}),
        ("reboot_device", "", {}),
    ],
)  # fmt: skip
def test_texts_become_arguments(name: str, text: str, wanted: dict[str, Any]) -> None:
    assert arguments(name, text) == wanted


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("refuel_data", "C1001, L1002", "refuel_data takes customer_id, line_id, gb_amount, with commas between"),
        ("refuel_data", "C1001, L1002, nan", "gb_amount of refuel_data must be a number"),
        ("refuel_data", "C1001, L1002, 1e999", "gb_amount of refuel_data must be a number"),
        ("get_bills_for_customer", "C1001, few", "limit of get_bills_for_customer must be a whole number"),
        ("set_apn_settings", "[1]", "apn_settings of set_apn_settings must be a JSON object"),
        ("set_apn_settings", "[" * 100_000, "apn_settings of set_apn_settings must be a JSON object"),
    ],
)
def test_what_cannot_be_read_is_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(ActionError, match=why):
        arguments(name, text)


def test_calls_of_tools_are_its_turns() -> None:
    env = env_of()
    task = next(task for task in env.tasks("train") if "data_usage_exceeded" in task.id)
    _, info = env.reset(options={"task": task, "tools": True})
    turn = as_turn(info["tools"], "refuel_data", {"argument": "C1001, L1002, 2.0"})
    assert env.step(turn)[0].startswith('{"message": "Successfully added 2.0 GB') and not env._invalid_turns
    said = env.step(render("get_details_by_id", "X1"))
    assert said[0] == "Error: Unknown ID format or type: X1" and not said[4]["invalid"], "an answer of the tool"


def test_too_early_is_a_failure_and_so_is_too_late() -> None:
    env = env_of(max_turns=3)
    env.reset(seed=0)
    assert env.step("done()")[1:4] == (0.0, True, False) and env.task_turns == 3
    env.reset(seed=0)
    ends = [env.step("check_status_bar()") for _ in range(3)]
    assert ends[-1][2:4] == (True, False) and ends[-1][4]["success"] is False


def test_importing_it_leaves_the_variables_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "import_module", lambda name: os.environ.update(OF_A_DOT_ENV="1"))
    module(f"{DOMAIN}.utils")
    assert "OF_A_DOT_ENV" not in os.environ


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(package, "import_module", missing)
    with pytest.raises(SettingsError, match=r"tau2: No module named 'tau2\.utils': pip install 'turnwise\[tau2\]'"):
        module("tau2.utils")
