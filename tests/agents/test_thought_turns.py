"""Episodes of thought factors: one message of the model, a turn for each of its thoughts."""

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import pytest
import torch
from fork_cases import GROUP, plan
from scripted_engine import FakeEngine
from thought_cases import CHATS, byte_level
from tree_cases import CRITIC_PROMPT, actor_critic, of_actions, truth

from agent_envs import registry
from agent_envs.core import Task
from agent_envs.isolation.faults import EnvFault
from agent_envs.isolation.hosts import EnvHosts
from agent_envs.math.config import MathConfig, Verifier
from agent_envs.math.env import MathEnv
from agents.engine.base import Completion, Request, SamplingSettings, StopReason
from agents.engine.hf import HFEngine
from agents.rollout.forking.settings import Measure
from agents.rollout.play import Played, rollout
from agents.rollout.quota import Quota
from agents.rollout.react import ReAct, ThoughtTurns
from agents.rollout.settings import ReActSettings
from agents.text.chat import Chat
from agents.tiny.model import TinySettings, build_model
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Job
from agents.tree.packing import pack

ENV = MathEnv(MathConfig(languages=("en",), max_turns=6, verifier=Verifier.EXACT))
TASK = ENV.tasks("train")[0]
BOX = "The answer is \\boxed{%s}."


def play(
    chat: Chat, said: str, settings: ReActSettings | None = None, env: MathEnv = ENV, task: Task = TASK
) -> tuple[Episode, FakeEngine]:
    """An episode of an agent that says one long message, however it is cut."""
    whole = (*chat.encode(said), chat.end_id)

    def script(request: Request, history: tuple[int, ...]) -> Sequence[int]:
        start = len(chat.prompt(*head(env, task)))
        return whole[max(0, len(history) + len(request.tokens) - start) :]

    engine = FakeEngine(script, chat.stop_ids)
    (episode,) = rollout(lambda: env.fork(), engine, chat, [Job(task)], settings).episodes
    return episode, engine


def head(env: MathEnv, task: Task) -> tuple[str, str, str]:
    twin = env.fork()
    user, info = twin.reset(options={"task": task})
    return twin.system_prompt(), user, info["thoughts"]["opening"]


def texts(episode: Episode) -> list[str]:
    return [text for text, _ in episode.texts]


@pytest.mark.parametrize("name", CHATS)
def test_an_episode_is_one_message_in_the_tokens_that_were_sampled(name: str) -> None:
    chat = CHATS[name]()
    said = f"First.\n\n\n\nThen\n\nso 3.\n\n{BOX % TASK.data.gold}"
    episode, engine = play(chat, said)
    assert episode.root.tokens == chat.prompt(*head(ENV, TASK))
    assert chat.decode(episode.root.tokens).endswith("Let's think step by step:")
    assert "".join(texts(episode)) == said and len(episode.turns) == 4
    assert sum((action.tokens for action, _ in episode.turns), ()) == (*chat.encode(said), chat.end_id)
    for action, state in episode.turns[:-1]:
        assert chat.end_id not in action.tokens and not state.tokens and not state.terminated
    last, end = episode.turns[-1]
    assert last.tokens[-1] == chat.end_id and end.terminated and end.success and last.reward == 1
    assert all(request.tokens == () for request in engine.submitted[1:])
    assert episode.root.children[0].kind is Kind.ACTION


def test_white_space_is_no_turn_of_its_own() -> None:
    episode, _ = play(byte_level(), "\n\n \n\nFirst.\n\n\n\n\n\nThen.\n\n\\boxed{1}")
    assert [text.strip() for text in texts(episode)] == ["First.", "Then.", "\\boxed{1}"]


def test_the_last_allowed_turn_takes_the_rest() -> None:
    said = "".join(f"{i}.\n\n" for i in range(9)) + BOX % TASK.data.gold
    episode, engine = play(byte_level(), said, ReActSettings(max_action_tokens=20))
    assert len(episode.turns) == ENV.max_turns and texts(episode)[-1].count("\n\n") == 4
    assert episode.success and "".join(texts(episode)) == said
    assert engine.submitted[-1].cut is None and engine.submitted[-1].max_tokens > 1000
    assert all(request.cut is not None and request.max_tokens == 20 for request in engine.submitted[:-1])


@pytest.mark.parametrize(("thoughts", "success"), [(2, True), (3, False)])
def test_a_limit_of_calls_holds_for_thoughts_too(thoughts: int, success: bool) -> None:
    episode, _ = play(byte_level(), "1.\n\n" * thoughts + BOX % TASK.data.gold, ReActSettings(call_limit=2))
    assert len(episode.turns) == 3 and episode.success is success and episode.end.truncated is not success


def test_what_ends_the_message_ends_the_episode() -> None:
    wrong, _ = play(byte_level(), "1.\n\nI give up.")
    assert wrong.end.terminated and wrong.success is False and len(wrong.turns) == 2
    long, _ = play(byte_level(), "1.\n\n" + "x" * 100, ReActSettings(max_action_tokens=10))
    assert long.end.terminated and long.success is False, "a thought that is too long is the end"
    full, _ = play(byte_level(), "1.\n\n" + "x" * 900, ReActSettings(max_tokens=400, max_action_tokens=400))
    assert full.end.truncated and not full.end.terminated and full.success is False, "an episode that is, is cut"
    empty, _ = play(byte_level(), "1.\n\n")
    assert empty.end.terminated or empty.end.truncated
    assert empty.success is False and len(empty.turns) == 2


def test_a_message_that_ended_is_over_whatever_the_environment_thinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_envs.actions.ends_thought", lambda text: True)
    episode, _ = play(byte_level(), f"1.\n\n{BOX % TASK.data.gold}")
    assert episode.end.truncated and episode.success is False


def test_nobody_is_told_that_a_thought_returned_nothing() -> None:
    episode, _ = play(byte_level(), "1.\n\n2.\n\n\\boxed{1}", ReActSettings(name_empty=True))
    assert [seen for _, seen in episode.texts] == ["", "", ""]
    assert not any(state.tokens for _, state in episode.turns)


def test_environments_in_other_processes_say_so_too() -> None:
    with EnvHosts(partial(MathEnv, ENV.config)) as hosts:
        env = hosts.make()
        _, info = env.reset(seed=0, options={"task": TASK})
        assert ThoughtTurns.of(info) == ThoughtTurns("Let's think step by step:", 6)
        assert ThoughtTurns.of(env.fork().reset(seed=0, options={"task": TASK})[1]) is not None
    assert ThoughtTurns.of(registry.make("identity").reset(seed=0)[1]) is None


@pytest.mark.parametrize("garbage", ["x", {}, {"opening": 1, "turns": 3}, {"opening": "a", "turns": 0}])
def test_garbage_about_thoughts_is_a_fault(garbage: Any) -> None:
    with pytest.raises(EnvFault, match="opening"):
        ThoughtTurns.of({"thoughts": garbage})


# -- on a model -------------------------------------------------------------------------------------------------------


def model() -> tuple[Any, Chat]:
    chat = byte_level()
    base = build_model(chat.tokenizer, TinySettings(width=32, mlp=48), seed=0)
    with torch.no_grad():
        for parameter in base.parameters():
            if parameter.dim() > 1:
                parameter.mul_(3)
        # Blank lines and ends come often enough for a message of a few thoughts.
        boost = [i for i in range(len(chat.tokenizer)) if "\n\n" in chat.decode([i])]
        base.model.embed_tokens.weight[boost] *= 2.0
    return base, chat


def sampled(slots: int, how: Any = None, group: int = 1) -> list[Episode]:
    return played(
        [Job(ENV.tasks("train")[i], sample) for i in range(3) for sample in range(group)], slots, how
    ).episodes


def played(jobs: Sequence[Job], slots: int, how: Any = None, quota: Quota | None = None) -> Played:
    base, chat = model()
    engine = HFEngine(base, chat.stop_ids, max_length=700, slots=slots, sampling=SamplingSettings(temperature=1.5))
    settings = ReActSettings(max_action_tokens=20, max_tokens=700)
    return rollout(lambda: MathEnv(ENV.config), engine, chat, jobs, settings, plan=how, quota=quota)


def path(episode: Episode) -> tuple[int, ...]:
    return episode.root.tokens + tuple(t for pair in episode.turns for node in pair for t in node.tokens)


@pytest.mark.runs
def test_thoughts_that_were_cut_go_on_as_if_they_had_not_been() -> None:
    whole = sampled(12, group=4)
    cuts = played([e.job for e in whole], 12, quota=Quota(1, 1)).cut
    begun = tuple(cut.episode for cut in cuts if cut.episode is not None)
    assert any(not episode.over for episode in begun) and len(cuts) == len(whole) - 1
    again = played([cut.job for cut in cuts], 12, quota=Quota(1, len(cuts), begun=begun)).episodes
    there = {e.job.id: e for e in whole}
    for episode in again:
        assert path(episode) == path(there[episode.job.id]) and episode.texts == there[episode.job.id].texts
        pairs = zip(episode.turns, there[episode.job.id].turns, strict=True)
        assert all(a.logp == pytest.approx(b.logp, abs=1e-5) for (a, _), (b, _) in pairs)


@pytest.mark.runs
def test_one_slot_and_many_give_the_same_episodes() -> None:
    alone, together = sampled(1, group=4), sampled(12, group=4)
    assert [path(e) for e in alone] == [path(e) for e in together]
    assert [len(e.turns) for e in alone] == [len(e.turns) for e in together]
    assert sum(len(e.turns) > 2 for e in alone) >= 3, "the control: there are turns"


@pytest.mark.runs
@pytest.mark.parametrize("measure", Measure)
def test_episodes_of_thoughts_fork(measure: Measure) -> None:
    found = sampled(2 * GROUP, plan(measure=measure, tokens=2), GROUP)
    chat = byte_level()
    forks = [e for e in found if e.forked_from is not None]
    assert len(found) == 3 * GROUP and forks
    for episode in found:
        assert not any(state.tokens for _, state in episode.turns)
        cut = [chat.thought_ends.length(action.tokens) for action, _ in episode.turns[:-1]]
        whole = [len(action.tokens) for action, _ in episode.turns[:-1]]
        assert cut == whole, "every thought but the last ends where its blank line is complete"
    unforked = {(e.job.task.id, e.job.sample): path(e) for e in sampled(2 * GROUP, group=GROUP)}
    same = [path(e) == unforked[e.job.task.id, e.job.sample] for e in found if e.forked_from is None]
    assert all(same) and same, "what is measured is what would have been said unmeasured"


def test_a_player_rejoins_where_its_thoughts_had_come_to() -> None:
    chat = byte_level()
    env = MathEnv(ENV.config)
    player = ReAct(env, chat, Job(TASK), 0, ReActSettings())
    player.start()
    for text in ("1.\n\n", "2.\n\n"):
        tokens = chat.encode(text)
        nothing = (0.0,) * len(tokens)
        assert player.turn(Completion(0, tokens, nothing, nothing, StopReason.CUT, 0)) is not None
    twin = MathEnv(ENV.config)
    player.rejoin(twin)
    assert twin.turn == 2 and twin._state == env._state
    fork = player.fork(env.fork(), Job(TASK, 1), 1)
    assert fork.thoughts == player.thoughts and fork.next_request() is not None


def test_a_packed_message_with_critic_prompts_equals_separate_passes() -> None:
    rng = Random(0)

    def thoughts(state: Node, turns: int) -> None:
        for turn in range(turns):
            action = Node(Kind.ACTION, tuple(rng.randrange(61) for _ in range(rng.randint(1, 6))))
            action.logp = (0.0,) * len(action.tokens)
            state = state.add(action).add(Node(Kind.STATE, (), terminated=turn == turns - 1))

    root = Node(Kind.STATE, (1, 2, 3, 4))
    thoughts(root, 4)
    thoughts(root, 3)
    ours = actor_critic("qwen3")
    batch = pack([root], CRITIC_PROMPT)
    out, (logp_N, value_S) = ours(batch), truth(ours, [root])
    assert out.value_S is not None
    assert (of_actions(batch, out) - logp_N).abs().max() <= 1e-5
    assert (out.value_S - value_S).abs().max() <= 1e-5
    linear = out.logp_T.roll(1)[batch.action_T >= 0]
    assert (linear - logp_N).abs().max() > 0.1, "the control: one token off"
