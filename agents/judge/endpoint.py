"""A judge that asks a language model behind an OpenAI-compatible endpoint.

Invariant: an episode without a readable answer has no labels. `Client` sees to it that every request ends and that the
key stays secret; what is written here goes through `_without_key`, too.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agents.endpoint.client import READY, Bill, Client, Failed, Limits
from agents.endpoint.client import wait_seconds as wait_seconds
from agents.endpoint.crew import Crew
from agents.judge.base import JudgeError, JudgeSettings, Labels, Verdicts
from agents.judge.parse import parse_judgments
from agents.judge.prompt import Message, messages_of
from agents.tree.episode import Episode


class EndpointJudge(Client):
    """Asks a model behind an OpenAI-compatible endpoint. See `agents.judge.base.Judge`."""

    who = "the judge"
    flags = ("--judge.base-url", "--judge.model")
    error = JudgeError

    def __init__(
        self,
        settings: JudgeSettings,
        environ: Mapping[str, str] = os.environ,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        self.settings = settings
        limits = Limits(settings.timeout, settings.patience, settings.api_max_retries)
        super().__init__(settings.base_url, limits, environ, sleep)

    def check(self) -> None:
        if self.settings.log_dir is not None:
            try:
                self.settings.log_dir.mkdir(parents=True, exist_ok=True)
                self._log({})
            except OSError as error:
                raise JudgeError(
                    f"cannot write into the judge's log folder {self.settings.log_dir} ({error.strerror}): give "
                    "another with --judge.log-dir"
                ) from None
        self.check_reachable(self._body(READY, 16), _content)

    def label(self, episodes: Sequence[Episode], scores: Sequence[float]) -> Verdicts:
        self._bill = bill = Bill()
        pairs = list(zip(episodes, scores, strict=True))
        crew = Crew(self.settings.concurrent, self._gone)
        labels = crew.map(lambda pair: self._judged(*pair), pairs)
        if pairs and bill.failures == len(pairs):
            raise JudgeError(
                f"the judge at {self.settings.base_url} answered none of {len(pairs)} requests; the last one failed "
                f"so: {self._last_failure}"
            )
        bill.cost = (
            bill.prompt_tokens * self.settings.price_prompt + bill.completion_tokens * self.settings.price_completion
        ) / 1e6
        return Verdicts(labels, {name: float(x) for name, x in asdict(bill).items()})

    # -- one episode ---------------------------------------------------------------------------------------------

    def _judged(self, episode: Episode, score: float) -> Labels:
        messages = messages_of(episode, score)
        reply, why, tries = self._answer(messages, episode)
        labels = parse_judgments(reply, len(episode.turns))
        if self.settings.log_dir is not None:
            entry = {"episode": episode.job.id, "model": self.settings.model, "tries": tries, "messages": messages}
            self._log(entry | {"reply": reply, "failure": why, "labels": labels})
        return labels

    def _answer(self, messages: list[Message], episode: Episode) -> tuple[str, str | None, int]:
        """(the reply, why there is none, tries); a reply that there is not is empty."""
        body = self._body(messages, self.settings.reply_tokens)
        try:
            reply, tries = self.ask(body, _content, lambda attempt: episode.job.seed("judge wait", attempt) / 2**63)
        except Failed as failed:
            return "", str(failed), failed.tries
        return reply, None, tries

    def _body(self, messages: Sequence[Mapping[str, str]], tokens: int) -> dict[str, Any]:
        return {"model": self.settings.model, "messages": messages, "temperature": 0, "max_tokens": tokens}

    def _log(self, entry: Mapping[str, Any]) -> None:
        """Adds a line to judge.jsonl; nothing for an empty entry, but the file is there."""
        assert self.settings.log_dir is not None
        line = self._without_key(json.dumps(entry)) + "\n" if entry else ""
        with self._lock, (self.settings.log_dir / "judge.jsonl").open("a", encoding="utf-8") as file:
            file.write(line)


def _content(values: dict[str, Any]) -> str:
    content = values["choices"][0]["message"]["content"] or ""
    if not isinstance(content, str):
        raise TypeError
    return content
