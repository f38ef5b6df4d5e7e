"""The policy itself as a judge: it reads the same question as any other model and answers greedily.

Invariant: it judges with the weights that played; the question goes through `Chat.prompt`, so nothing in it becomes a
control token. An episode whose question does not fit is not judged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from agents.engine.base import Engine, Request, SamplingSettings
from agents.judge.base import Judge, JudgeSettings, Labels, Verdicts
from agents.judge.parse import parse_judgments
from agents.judge.prompt import messages_of
from agents.tree.episode import Episode

if TYPE_CHECKING:  # a listing imports every judge, and takes no tokenizer
    from agents.text.chat import Chat


class PolicyJudge(Judge):
    """Asks the model that is trained.

    ``refresh`` loads the policy that played into ``engine``. The engine is the judge's own; it has no open session, and
    its sessions are long enough for question and answer.
    """

    def __init__(self, engine: Engine, chat: Chat, settings: JudgeSettings, refresh: Callable[[], None]) -> None:
        self.engine, self.chat, self.settings, self.refresh = engine, chat, settings, refresh
        engine.sampling = SamplingSettings(greedy=True)

    def label(self, episodes: Sequence[Episode], scores: Sequence[float]) -> Verdicts:
        self.refresh()
        labels: list[Labels] = [(None,) * len(episode.turns) for episode in episodes]
        waiting: deque[Request] = deque()
        for i, (episode, score) in enumerate(zip(episodes, scores, strict=True)):
            system, user = (message["content"] for message in messages_of(episode, score))
            tokens = self.chat.prompt(system, user)
            if len(tokens) <= self.settings.max_prompt_tokens:
                waiting.append(Request(i, tokens, self.settings.reply_tokens, seed=0))
        requests, answered = list(waiting), 0
        while waiting or self.engine.pending:
            while waiting and self.engine.pending < self.engine.slots:
                self.engine.submit(waiting.popleft())
            for completion in self.engine.step():
                self.engine.close_session(completion.session)
                answered += len(completion.tokens)
                reply = self.chat.action_text(completion.tokens)
                labels[completion.session] = parse_judgments(reply, len(episodes[completion.session].turns))
        stats = {
            "calls": float(len(requests)),
            "too_long": float(len(episodes) - len(requests)),
            "prompt_tokens": float(sum(len(request.tokens) for request in requests)),
            "completion_tokens": float(answered),
        }
        return Verdicts(labels, stats)
