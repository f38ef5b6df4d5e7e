"""The interface of a judge, its settings, and the judges by name. Imports no torch: the command line needs them.

Invariant: an episode's labels are one per turn, GOOD (True), BAD (False), or None where the judge said nothing that
could be understood. A judge never guesses: what it cannot tell is None, is counted, and has no part in any statistic.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agent_envs.plugins import Registry
from agent_envs.ranges import check_ranges
from agents.endpoint.address import check_address

if TYPE_CHECKING:
    from agents.tree.episode import Episode

Labels = tuple[bool | None, ...]
"""One for each turn of an episode."""


class JudgeError(RuntimeError):
    """The judge cannot be used; one line that says how to fix it and holds no secret."""


@dataclass
class Verdicts:
    """What a judge said of some episodes."""

    labels: list[Labels]
    """In the order of the episodes."""
    stats: dict[str, float] = field(default_factory=dict)
    """What it took: calls, tokens, retries and the like, for these episodes only."""


class Judge(Protocol):
    """Labels the actions of finished episodes. A judge that derives from it need only write ``label``."""

    def check(self) -> None:
        """Makes sure, cheaply and before anything is sampled, that it can be asked. Raises JudgeError."""
        return

    def label(self, episodes: "Sequence[Episode]", scores: Sequence[float]) -> Verdicts:
        """``scores`` are how the episodes went, a positive one meaning well. Raises JudgeError when it is gone."""
        ...

    def close(self) -> None:
        """Frees what it holds. Safe to call twice."""
        return


class JudgeKind(StrEnum):
    """The built-in judges: a language model behind an OpenAI-compatible endpoint, the policy that acted, an earlier
    run's critic, or the environment's oracle."""

    ENDPOINT = "endpoint"
    POLICY = "policy"
    CRITIC = "critic"
    ORACLE = "oracle"


@dataclass(frozen=True)
class JudgeSettings:
    """The judge of every action. Each setting names the judges that it is for; those of other packages get all."""

    kind: str | None = None
    """The judge: endpoint, policy, critic, oracle, or one of another package."""
    model: str = ""
    """endpoint: name of the model there."""
    base_url: str = "https://dashscope.aliyuncs.com/compatible-mode/v1"
    """endpoint: address before /chat/completions. Its key is read from DASHSCOPE_API_KEY, OPENAI_API_KEY, or for other
    hosts TURNWISE_KEY_HOST, as in TURNWISE_KEY_API_EXAMPLE_COM."""
    concurrent: int = 20
    """endpoint, policy: how many episodes are judged at once."""
    api_max_retries: int = 200
    """endpoint: how often a failed request is repeated, each time after a longer wait."""
    timeout: float = 120.0
    """endpoint: seconds that one request may take."""
    patience: float = 900.0
    """endpoint: seconds after which an episode is left unjudged, retries and waits included."""
    log_dir: Path | None = None
    """endpoint: folder for every request and its answer (judge.jsonl); by default none are kept."""
    price_prompt: float = 0.0
    """endpoint: price of a million prompt tokens, in any currency."""
    price_completion: float = 0.0
    """endpoint: price of a million completion tokens."""
    max_reply_tokens: int | None = None
    """endpoint, policy: longest answer; by default 8192 of an endpoint's tokens, 512 of the policy's."""
    max_prompt_tokens: int = 3584
    """policy: an episode whose request is longer is not judged."""
    run: Path | None = None
    """critic: the run, or one of its checkpoints, whose critic judges, for example of selfac on the same base."""
    noise: float = 0.0
    """oracle: probability that a label is inverted."""

    def __post_init__(self) -> None:
        check_ranges(self, ValueError, "judge.", concurrent=1, api_max_retries=0, max_prompt_tokens=1, noise=(0, 1))
        check_ranges(self, ValueError, "judge.", price_prompt=0, price_completion=0)
        for name in ("timeout", "patience"):
            _require(getattr(self, name) > 0, f"judge.{name} must be above 0, not {getattr(self, name)}")
        reply = self.max_reply_tokens
        _require(reply is None or reply >= 1, f"judge.max_reply_tokens must be at least 1, not {reply}")
        check_address(self.base_url, "judge.base_url")
        for f in fields(self):
            kinds, ours = ACTS.get(f.name), self.kind is None or self.kind in list(JudgeKind)
            if kinds and ours and self.kind not in kinds and getattr(self, f.name) != f.default:
                raise ValueError(f"judge.{f.name} only works with judge.kind {' or '.join(kinds)}")
        if self.kind == JudgeKind.ENDPOINT:
            _require(bool(self.model), "judge.kind endpoint needs the name of a model there: judge.model")
        if self.kind == JudgeKind.CRITIC:
            _require(self.run is not None, "judge.kind critic needs a run that trained a critic: judge.run")

    @property
    def reply_tokens(self) -> int:
        return self.max_reply_tokens or (512 if self.kind == JudgeKind.POLICY else 8192)


_ASKED, _HTTP = (JudgeKind.ENDPOINT, JudgeKind.POLICY), (JudgeKind.ENDPOINT,)
ACTS: dict[str, tuple[JudgeKind, ...]] = {
    **dict.fromkeys(("concurrent", "max_reply_tokens"), _ASKED),
    **dict.fromkeys(("model", "base_url", "api_max_retries", "timeout", "patience"), _HTTP),
    **dict.fromkeys(("log_dir", "price_prompt", "price_completion"), _HTTP),
    "max_prompt_tokens": (JudgeKind.POLICY,),
    "run": (JudgeKind.CRITIC,),
    "noise": (JudgeKind.ORACLE,),
}
"""The kinds that each setting acts for; elsewhere it must stay as it is."""


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def check_kind(found: Any, who: str) -> None:
    """Raises ValueError unless ``found`` has ``open``."""
    if not callable(getattr(found, "open", None)):
        raise ValueError(f"{who} has no open(settings)")


JUDGES: Registry[Any] = Registry(
    kind="judge",
    group="turnwise.judges",
    builtin={
        "critic": "agents.judge.critic:CriticJudge",
        "endpoint": "agents.judge.endpoint:EndpointJudge",
        "oracle": "agents.judge.oracle:OracleJudge",
        "policy": "agents.judge.policy:PolicyJudge",
    },
    check=check_kind,
)
"""A judge of another package is a class whose static method ``open(settings: JudgeSettings)`` returns a `Judge`, and
raises JudgeError, in one line that the user can act on."""
