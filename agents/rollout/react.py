"""ReAct: one action for every state, until the environment ends the episode.

Where the environment's turns are thought factors ([Self-AC slides, CoT]: a_k is a thought with its
blank line, o_k is empty), an episode is one message of the model. It begins with the environment's opening words, which
belong to the first state; every action is cut after the token that completes its blank line, and the state after it has
no tokens; the last allowed turn goes on to the end of the message.

Where actions are calls of tools (``chat.format``), the environment gets, and the record keeps as the action's text, the
turn in text that the call is; its tokens stay as they were sampled. So doing a record again needs no reader of calls.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

from agent_envs.core import PlayableEnv
from agent_envs.isolation.faults import EnvFault, FaultKind, Stage
from agent_envs.isolation.hosts import RemoteEnv
from agents.engine.base import Completion, Request, StopReason
from agents.rollout.env_half import CALL_LIMIT as CALL_LIMIT
from agents.rollout.env_half import EnvHalf, anchor, oracle_of, tools_in
from agents.rollout.env_half import ThoughtTurns as ThoughtTurns
from agents.rollout.settings import ReActSettings
from agents.text.chat import Chat
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Job


class ReAct(EnvHalf):
    """Plays one episode: it turns completions into environment steps and observations into requests.

    The caller moves it along: ``start`` gives the first request; ``act`` takes a completion and steps the environment
    (the only slow part); ``next_request`` is the request after it, or None when the episode has ended. ``start`` and
    ``act`` raise EnvFault when the environment breaks; the player is then of no further use, except to `rejoin`.
    """

    def __init__(self, env: PlayableEnv, chat: Chat, job: Job, session: int, settings: ReActSettings) -> None:
        super().__init__(env, job, settings, calls=chat.format is not None)
        self.chat, self.session = chat, session
        self.length = 0
        """Tokens of the path up to the action that is to come."""
        self.request: Request | None = None
        """What was asked last."""
        self._said: tuple[Completion, str] | None = None
        """An action, and what the environment reads of it."""

    def start(self) -> Request | None:
        system, user, info = self.reset()
        self.thoughts = ThoughtTurns.of(info)
        opening = self.thoughts.opening if self.thoughts else ""
        if self.calls:
            system, self.tools = tools_in(info)
            prompt = self.chat.prompt(system, user, opening, self.tools)
        else:
            prompt = self.chat.prompt(system, user, opening)
        root = Node(Kind.STATE, prompt, anchor=anchor(user), oracle=oracle_of(info))
        self.episode = Episode(self.job, root, prompt=(system, user))
        return self._request(root)

    def resume(self, begun: Episode) -> Request | None:
        """Goes on with an episode of this job that was cut, in a fresh environment; the first request holds its whole
        path. Raises EnvFault where the environment asks or answers otherwise than it did."""
        self.start()
        if self.episode.root.tokens != begun.root.tokens:
            raise EnvFault(FaultKind.GARBAGE, Stage.RESET, "asked again, it began otherwise")
        self.episode = deepcopy(begun)
        self.redo()
        path = tuple(token for node in self.episode.root.walk() for token in node.tokens)
        self.length = len(path) - len(self.episode.end.tokens)
        request = self._request(self.episode.end)
        self.request = request and replace(request, tokens=path)
        return self.request

    def fork(self, env: PlayableEnv, job: Job, session: int) -> ReAct:
        """Another player at the same state, on its own ``env``, which stands there too."""
        twin = type(self)(env, self.chat, job, session, self.settings)
        twin.length, twin.thoughts, twin.tools = self.length, self.thoughts, self.tools
        twin.episode = self.episode.fork(job)
        return twin

    def begin_act(self, completion: Completion) -> None:
        """Has an environment in another process begin on what `act` asks of it."""
        if isinstance(self.env, RemoteEnv):
            self.env.begin_step(self._text(completion))

    def act(self, completion: Completion) -> None:
        """Records a sampled action and what the environment answered."""
        text = self._text(completion)
        observation, reward, terminated, truncated, info = self._step(text, len(self.episode.turns))
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
        self.episode.end.add(action).add(state)
        self._record(action, state, text, observation, info)

    def _text(self, completion: Completion) -> str:
        """What the environment reads."""
        if self._said is None or self._said[0] is not completion:
            self._said = completion, self._read(completion)
        return self._said[1]

    def _read(self, completion: Completion) -> str:
        if self.thoughts is not None:
            return self.chat.action_text(completion.tokens)
        return self.chat.turn_text(completion.tokens, first=not self.episode.turns, tools=self.tools)

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
        return None if self.episode.over else self._request(self.episode.end)

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
