"""ReAct: one action for every state, until the environment ends the episode.

Where the environment's turns are thought factors ([Self-AC slides, CoT]: a_k is a thought with its
blank line, o_k is empty), an episode is one message of the model. It begins with the environment's opening words, which
belong to the first state; every action is cut after the token that completes its blank line, and the state after it has
no tokens; the last allowed turn goes on to the end of the message.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from agent_envs.core import PlayableEnv
from agent_envs.isolation.faults import EnvFault, FaultKind, Stage, blamed
from agents.engine.base import Completion, Request, StopReason
from agents.rollout.settings import ReActSettings
from agents.text.chat import Chat
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Job

EMPTY = "Tool({}) returned empty output."
CALL_LIMIT = "The limit of calls was reached."
"""For the record; the agent, whose episode has ended, does not read it."""
MOST_REWARD = 3.4028234663852886e38
"""The largest float32: returns and losses are computed from rewards of that type."""


@dataclass(frozen=True)
class ThoughtTurns:
    """What an environment says whose turns are thought factors."""

    opening: str
    """How the model's message begins."""
    turns: int
    """Turns it allows."""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> ThoughtTurns | None:
        """None where turns are messages of their own. Raises EnvFault."""
        match info.get("thoughts"):
            case None:
                return None
            case {"opening": str() as opening, "turns": int() as turns} if turns >= 1:
                return cls(opening, turns)
        raise EnvFault(FaultKind.GARBAGE, Stage.RESET, "reset must tell the opening and the turns of thoughts")


class ReAct:
    """Plays one episode: it turns completions into environment steps and observations into requests.

    The caller moves it along: ``start`` gives the first request; ``act`` takes a completion and steps the environment
    (the only slow part); ``next_request`` is the request after it, or None when the episode has ended. ``start`` and
    ``act`` raise EnvFault when the environment breaks; the player is then of no further use, except to `rejoin`.
    """

    def __init__(self, env: PlayableEnv, chat: Chat, job: Job, session: int, settings: ReActSettings) -> None:
        self.env, self.chat, self.job, self.session, self.settings = env, chat, job, session, settings
        self.length = 0
        """Tokens of the path up to the action that is to come."""
        self.request: Request | None = None
        """What was asked last."""
        self.thoughts: ThoughtTurns | None = None
        self.episode: Episode

    def start(self) -> Request | None:
        system, user, info = self.reset()
        self.thoughts = ThoughtTurns.of(info)
        prompt = self.chat.prompt(system, user, self.thoughts.opening if self.thoughts else "")
        root = Node(Kind.STATE, prompt, anchor=anchor(user), oracle=oracle_of(info))
        self.episode = Episode(self.job, root, prompt=(system, user))
        return self._request(root)

    def reset(self) -> tuple[str, str, dict[str, Any]]:
        # Every sample of a task begins in the same state: the environment's seed does not depend on the sample.
        seed = Job(self.job.task, 0, self.job.run_seed).seed("env") & 0x7FFFFFFF
        with blamed(Stage.RESET):
            options = {"task": self.job.task} | ({"oracle": True} if self.settings.oracle else {})
            user, info = self.env.reset(seed=seed, options=options)
            return self.env.system_prompt(), user, info

    def rejoin(self, env: PlayableEnv) -> None:
        """Brings a fresh ``env`` to the state of this episode, by doing again what was done. Raises EnvFault."""
        self.env = env
        self.reset()
        for done, (text, seen) in enumerate(self.episode.texts):
            observation = self._step(text, done)[0]
            if observation != seen:
                raise EnvFault(FaultKind.GARBAGE, Stage.STEP, f"asked again, it answered {text!r:.80} otherwise")

    def fork(self, env: PlayableEnv, job: Job, session: int) -> ReAct:
        """Another player at the same state, on its own ``env``, which stands there too."""
        twin = type(self)(env, self.chat, job, session, self.settings)
        twin.length, twin.thoughts, twin.episode = self.length, self.thoughts, self.episode.fork(job)
        return twin

    def _step(self, text: str, done: int) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """The environment's answer to the action after ``done`` others, as the agent gets it."""
        with blamed(Stage.STEP):
            observation, reward, terminated, truncated, info = self.env.step(text)
        check_answer(reward, info, over=terminated or truncated)
        if terminated or truncated:
            return observation, reward, terminated, truncated, info
        if self.settings.call_limit and done >= self.settings.call_limit:
            # Only now it is known that the action was not an answer. It is neither paid nor shown.
            ended = {**info, "success": False} | ({"oracle": 0.0} if "oracle" in info else {})
            return CALL_LIMIT, 0.0, False, True, ended
        if self.settings.name_empty and not observation and self.thoughts is None:
            observation = EMPTY.format(info.get("action") or "action")
        return observation, reward, terminated, truncated, info

    def act(self, completion: Completion) -> None:
        """Records a sampled action and what the environment answered."""
        episode = self.episode
        text = self.chat.action_text(completion.tokens)
        observation, reward, terminated, truncated, info = self._step(text, len(episode.turns))
        self.length += len(completion.tokens)
        if self.thoughts is not None:
            terminated, truncated = self._message_ends(completion, terminated, truncated, success=info.get("success"))
            info = info | ({"oracle": 0.0} if truncated and "oracle" in info else {})
        action = Node(
            Kind.ACTION,
            completion.tokens,
            logp=completion.logp,
            entropy=completion.entropy,
            reward=float(reward),
            version=completion.version,
        )
        state = Node(
            Kind.STATE,
            (),
            terminated=terminated,
            truncated=truncated,
            anchor=anchor(observation),
            oracle=oracle_of(info),
        )
        if terminated or truncated:
            state.success = bool(info.get("success"))
        elif self.thoughts is None:
            closed = completion.stop is StopReason.END
            state.tokens = self.chat.observation(observation, closed=closed)
        episode.end.add(action).add(state)
        episode.turns.append((action, state))
        episode.texts.append((text, observation))
        episode.invalid += bool(info.get("invalid"))
        episode.errors += info.get("error") is not None
        episode.metrics = dict(info.get("metrics", {}))

    def _message_ends(
        self, completion: Completion, terminated: bool, truncated: bool, *, success: bool | None
    ) -> tuple[bool, bool]:
        """(terminated, truncated) of a thought, from what the environment made of its text."""
        if completion.stop is StopReason.END and not (terminated or truncated):
            return False, True  # there is nothing left to go on with
        if completion.stop is StopReason.LENGTH and terminated and not success:
            # Where the episode was too long, the text just stops: that is not an answer.
            full = self.length >= self.settings.max_tokens
            return not full, full
        return terminated, truncated

    def turn(self, completion: Completion) -> Request | None:
        """``act``, then ``next_request``."""
        self.act(completion)
        return self.next_request()

    def next_request(self) -> Request | None:
        """The request for the next action, or None when the episode is over."""
        end = self.episode.end
        return None if end.terminated or end.truncated else self._request(end)

    def _request(self, state: Node) -> Request | None:
        room = self.settings.max_tokens - self.length - len(state.tokens)
        if room < 1:
            state.truncated, state.success = True, False
            state.oracle = None if state.oracle is None else 0.0
            # The observation that does not fit was never read: it is no part of the record.
            if self.episode.turns:
                state.tokens = ()
            return None
        self.length += len(state.tokens)
        done = len(self.episode.turns)
        # A limit of calls is none of the environment's: what is done beyond it must be an answer by itself.
        cuts = self.thoughts is not None and done + 1 < self.thoughts.turns
        self.request = Request(
            session=self.session,
            tokens=state.tokens,
            max_tokens=room if self.thoughts and not cuts else min(self.settings.max_action_tokens, room),
            seed=self.job.seed(done),
            cut=self.chat.thought_ends if cuts else None,
        )
        return self.request


Player = Callable[[PlayableEnv, Chat, Job, int, ReActSettings], ReAct]
"""Who plays an episode: `ReAct`, or what an agent of another package makes of the same arguments."""


def anchor(observation: str) -> str:
    """Identity of an observation; an empty one, which every state may have, is like no other and has none."""
    return observation and blake2b(observation.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def check_answer(reward: float, info: Mapping[str, Any], *, over: bool) -> None:
    """Raises EnvFault for a reward that is no finite float32, and for an end without a verdict or plain metrics."""
    metrics = info.get("metrics", {})
    if not abs(reward) <= MOST_REWARD:
        problem = f"the reward {reward} is not a finite float32"
    elif over and type(info.get("success")) is not bool:
        problem = f"info['success'] must be True or False at the end, not {info.get('success')!r:.80}"
    elif not (isinstance(metrics, Mapping) and all(map(_is_metric, metrics.items()))):
        problem = f"info['metrics'] must hold finite numbers by name, not {metrics!r:.80}"
    else:
        return
    raise EnvFault(FaultKind.GARBAGE, Stage.STEP, problem)


def _is_metric(item: tuple[Any, Any]) -> bool:
    name, value = item
    return isinstance(name, str) and isinstance(value, int | float) and abs(value) <= sys.float_info.max


def oracle_of(info: Mapping[str, Any]) -> float | None:
    """The oracle's number, which must be one."""
    value = info.get("oracle")
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
