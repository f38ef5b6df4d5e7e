"""A served model plays an episode: messages in place of tokens, by the same rules as `ReAct`.

Where turns are thought factors, one reply is the whole message; it is cut at its blank lines, each piece is a turn, and
what follows the end of the episode is dropped. Tokens are counted by the server: a reply that goes beyond
``max_tokens`` of the episode truncates it and is not played.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from agent_envs.actions import thoughts_of
from agent_envs.core import PlayableEnv
from agent_envs.isolation.faults import HostLost, Stage, blamed
from agent_envs.tools import as_turn, no_action, two_actions
from agents.endpoint.served import Message, NoReply, Question, Reply, ServedModel
from agents.rollout.env_half import EnvHalf, ThoughtTurns, tools_in
from agents.rollout.settings import ReActSettings
from agents.rollout.slot import MakeEnv, rejoined
from agents.tree import Kind, Node
from agents.tree.episode import Job, Served

T = TypeVar("T")


@dataclass(frozen=True)
class Speaker:
    """Who plays, and how tokens are drawn."""

    model: ServedModel
    temperature: float


class ChatPlayer(EnvHalf):
    """Plays one episode, from `play`. Raises EnvFault, and EndpointError where the model cannot be asked any more."""

    episode: Served

    def __init__(
        self, env: PlayableEnv, make_env: MakeEnv, job: Job, settings: ReActSettings, speaker: Speaker
    ) -> None:
        super().__init__(env, job, settings, calls=speaker.model.settings.tools)
        self.make_env, self.speaker, self.how = make_env, speaker, speaker.model.settings
        self.messages: list[Message] = []
        self.spent = 0
        """Tokens of the conversation up to the last reply, by the server's count."""

    def play(self) -> Served:
        self.episode = Served(self.job, Node(Kind.STATE, ()))
        system, user, info = self._steadily(self.reset)
        self.thoughts = ThoughtTurns.of(info)
        if self.calls:
            system, self.tools = tools_in(info)
        self.episode.prompt = (system, user)
        self.messages = [{"role": "system", "content": system}] if system else []
        self.messages.append({"role": "user", "content": user})
        try:
            if self.thoughts is not None:
                self._think(self.thoughts)
            while not self.over:
                self._act()
        except NoReply as reason:
            self.episode.ended = str(reason)
            self._truncate()
        return self.episode

    @property
    def over(self) -> bool:
        return self.episode.over

    # -- one message a turn --------------------------------------------------------------------------------------

    def _act(self) -> None:
        reply = self._ask(self.settings.max_action_tokens)
        if reply is None:
            return self._truncate()
        read = [_arguments(call.arguments) for call in reply.calls]
        text, said = reply.text, Message(role="assistant", content=reply.text)
        ids = [f"call{len(self.episode.turns):04d}{chr(97 + i)}" for i in range(len(read))]
        if reply.calls:
            said["tool_calls"] = [
                # What is no JSON cannot be said again: servers read it.
                {
                    "id": name,
                    "type": "function",
                    "function": {"name": call.name, "arguments": "{}" if arguments is None else call.arguments},
                }
                for name, call, arguments in zip(ids, reply.calls, read, strict=True)
            ]
            if len(read) > 1:
                text = two_actions(reply.text)
            elif read[0] is None:
                text = no_action(reply.text)
            else:
                with blamed(Stage.STEP):
                    text = as_turn(self.tools, reply.calls[0].name, read[0], reply.text)
        observation = self._turn(text)
        self.messages.append(said)
        heard = [Message(role="tool", tool_call_id=name, content=observation) for name in ids]
        self.messages += heard or [Message(role=str(self.how.observation_role), content=observation)]

    def _turn(self, text: str, *, cut: bool | None = None) -> str:
        """Steps the environment and records the turn; returns the observation. ``cut`` says of the last piece of a
        message whether it was cut."""
        step = self._steadily(lambda: self._step(text, len(self.episode.turns)))
        observation, reward, terminated, truncated, info = step
        if cut is not None and not (terminated or truncated):
            truncated = True  # there is nothing left to go on with
        elif cut and terminated and not info.get("success"):
            terminated, truncated = False, True  # the text just stops: that is not an answer
        action = Node(Kind.ACTION, (), reward=float(reward))
        state = Node(Kind.STATE, (), terminated=terminated, truncated=truncated)
        if terminated or truncated:
            state.success = bool(info.get("success"))
        self._record(action, state, text, observation, info)
        return observation

    # -- one message an episode ----------------------------------------------------------------------------------

    def _think(self, thoughts: ThoughtTurns) -> None:
        continues = self.how.prefill and bool(thoughts.opening)
        if continues:
            self.messages.append({"role": "assistant", "content": thoughts.opening})
        # How long the prompt is will be known afterwards only: half of the tokens are left to it.
        reply = self._ask(max(1, self.settings.max_tokens // 2), continues=continues)
        if reply is None:
            return self._truncate()
        pieces = thoughts_of(reply.text, thoughts.turns)
        for number, piece in enumerate(pieces, 1):
            self._turn(piece, cut=reply.cut if number == len(pieces) else None)
            if self.over:
                return

    # -- both ----------------------------------------------------------------------------------------------------

    def _ask(self, tokens: int, *, continues: bool = False) -> Reply | None:
        """The next reply; None where it does not fit into the episode."""
        most, episode, turn = self.settings.max_tokens, self.episode, len(self.episode.turns)
        if self.spent >= most:
            return None
        question = Question(
            self.messages, min(tokens, most - self.spent), self.speaker.temperature,
            self.job.seed(turn) & 0x7FFFFFFF, self.tools, continues,
        )  # fmt: skip
        reply = self.speaker.model.reply(question, lambda attempt: self.job.seed("wait", turn, attempt) / 2**63)
        self.spent = reply.prompt_tokens + reply.completion_tokens
        episode.requests += 1
        episode.prompt_tokens += reply.prompt_tokens
        episode.completion_tokens += reply.completion_tokens
        return None if self.spent > most else reply

    def _truncate(self) -> None:
        self.episode.end.truncated, self.episode.end.success = True, False

    def _steadily(self, call: Callable[[], T]) -> T:
        """What ``call`` returns; where another environment's fault took ours with it, in a fresh one."""
        while True:
            try:
                return call()
            except HostLost:
                self.env.close()
                rejoined(self, self.make_env)


def _arguments(text: str) -> dict[str, Any] | None:
    """The arguments of a call; None where they are no JSON object."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None
