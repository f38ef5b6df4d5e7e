"""Demonstrations in thoughts: the chain that a small model is cloned from is the one that a rollout records."""

from collections.abc import Sequence

import numpy as np
from scripted_engine import FakeEngine

from agent_envs.identity.env import IdentityEnv
from agent_envs.math.config import MathConfig, Verifier
from agent_envs.math.env import MathEnv
from agents.engine.base import Request
from agents.rollout.play import rollout
from agents.text.chat import Chat
from agents.text.settings import CRITIC_TEXT
from agents.tiny.tokenizer import build_tokenizer
from agents.tree import Kind, Node
from agents.tree.episode import Job
from runners.cloning.demonstrations import chain, demonstrate

ENV = MathEnv(MathConfig(verifier=Verifier.EXACT))


def nodes(root: Node) -> list[tuple[str, tuple[int, ...]]]:
    found, node = [], root
    while True:
        found.append((node.kind.value, node.tokens))
        if not node.children:
            return found
        (node,) = node.children


def test_a_demonstration_is_the_episode_of_a_model_that_says_it() -> None:
    rng = np.random.default_rng(0)
    tasks = [ENV.tasks("train")[i] for i in range(6)]
    shown = [demonstrate(ENV, task, flaw=0.5, rng=rng) for task in tasks]
    texts = [text for one in shown for pair in (one.head, *one.turns) for text in pair]
    chat = Chat(build_tokenizer(texts * 3, [*ENV.lexicon(), CRITIC_TEXT]))
    for task, one in zip(tasks, shown, strict=True):
        made = nodes(chain(chat, one))
        message = [token for kind, tokens in made if kind == "action" for token in tokens]
        assert message.count(chat.end_id) == 1 and message[-1] == chat.end_id
        assert not any(tokens for kind, tokens in made[1:] if kind == "state")

        def say(request: Request, history: tuple[int, ...]) -> Sequence[int]:
            begins = len(made[0][1])  # noqa: B023
            return message[max(0, len(history) + len(request.tokens) - begins) :]  # noqa: B023

        (episode,) = rollout(ENV.fork, FakeEngine(say, chat.stop_ids), chat, [Job(task)]).episodes
        assert nodes(episode.root) == made


def test_where_turns_are_messages_each_one_ends() -> None:
    env = IdentityEnv()
    shown = demonstrate(env, env.tasks("train")[0], flaw=0.0, rng=np.random.default_rng(0))
    chat = Chat(build_tokenizer([text for pair in (shown.head, *shown.turns) for text in pair] * 3, env.lexicon()))
    actions = [tokens for kind, tokens in nodes(chain(chat, shown)) if kind == "action"]
    assert shown.head[2] == "" and len(actions) == 3 and all(tokens[-1] == chat.end_id for tokens in actions)


def test_the_verdict_stands_where_a_demonstration_ends_and_the_oracle_speaks_of_every_state() -> None:
    env = IdentityEnv()
    chat = Chat(build_tokenizer(["a text of words"]))
    for flaw, wanted in ((0.0, True), (1.0, False)):
        task, rng = env.tasks("train")[0], np.random.default_rng(0)
        shown = demonstrate(env, task, flaw=flaw, rng=rng, oracle=True)
        states = [node for node in chain(chat, shown).walk() if node.kind is Kind.STATE]
        assert [state.success for state in states] == [None] * (len(states) - 1) + [wanted]
        assert [state.oracle for state in states] == list(shown.chances) and states[-1].oracle == float(wanted)
        silent = demonstrate(env, task, flaw=flaw, rng=rng)
        assert all(node.oracle is None for node in chain(chat, silent).walk())
