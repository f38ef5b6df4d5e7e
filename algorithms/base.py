"""The algorithm's interface: two functions of a batch, what they need, and what the rollout asks.

Invariant: an algorithm sees token trees (`Batch`) and the actor-critic's numbers for them (`Forward`), nothing else.
Its fields are its hyper-parameters; it keeps no state between calls.

Legend of the shape suffixes: T tokens, A actions, S states, L leaves = episodes.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from typing import Any, ClassVar, Generic, TypeVar

import torch

from agents.rollout.forking.settings import ForkPoint as ForkPoint
from agents.rollout.forking.settings import Sampling as Sampling
from agents.tree import Batch, Forward, Tensor
from algorithms.credit_kind import CreditKind

Credit = TypeVar("Credit")


@dataclass(frozen=True)
class Loss:
    """What `Algorithm.loss` returns."""

    total: Tensor
    """Scalar to minimise, with its graph."""
    stats: dict[str, float]
    """Plain numbers for the log: ``policy``, ``clip_fraction`` and whatever else the algorithm has to tell."""


@dataclass(frozen=True)
class Needs:
    """What an algorithm needs besides the trees. Programs provide it, or refuse the run in one line."""

    critic: bool = False
    """Values of states: the critic prompt is packed under every state, and `Forward.value_S` is there."""
    token_critic: bool = False
    """Values of tokens, `Forward.value_T`, from a critic that shares no trained parameter with the policy."""
    judge: bool = False
    """A judge's label of every action, `Batch.label_A`; the algorithm is then a `JudgedAlgorithm`."""
    oracle: bool = False
    """The environment's own chance of success in every state, `Batch.oracle_S`."""
    continuations: int = 0
    """Episodes that the policy plays on from every state: their mean return is `Batch.continued_S`."""
    discount: float = 1.0
    """Worth of a reward one turn later in the returns of continuations."""
    count_continuations: bool = True
    """Whether their turns, tokens and seconds count as the run's own. A control has them for nothing."""
    reference: bool = False
    """Log-probabilities of the reference policy, `Batch.ref_logp_T`."""
    search: bool = False
    """It can learn from a search tree, in which most states were given up and never played to an end."""
    replay: bool = False
    """Its critic can learn alone, from episodes of earlier updates: `Algorithm.critic_only`."""
    moments: bool = False
    """Mean and deviation of the advantages of a whole update, of which a batch is a part: `Algorithm.moments` gives
    those of the part, and `Algorithm.scaled` takes the whole's."""
    ratios: bool = True
    """Its loss starts from `Batch.old_logp_T`, so that it can learn from what an older policy played. Without, each
    token of such an episode must be weighted."""
    separate_passes: bool = False
    """Every turn and every value is encoded on its own with its whole prefix; the same numbers, only slower."""


@dataclass(frozen=True)
class ValueMeaning:
    """What a critic's values estimate."""

    discount: float = 1.0
    """Worth of a reward one turn later."""
    verifies: bool = False
    """Whether the value after an answer learned the outcome, so that it can verify finished work."""


class Algorithm(ABC, Generic[Credit]):
    """A rule that turns episodes into a loss. Subclasses are frozen dataclasses; no method inherits from another."""

    def __post_init__(self) -> None:
        """Raises ValueError for a field of a usual name (`RANGES`) that is out of its range, and for a choice that
        there is not. A field is a choice when its default is a member of a StrEnum.
        """
        settings: Any = self
        for field in fields(settings):
            value = getattr(self, field.name)
            if isinstance(field.default, StrEnum):
                require_choice(value, type(field.default))
            if field.name in RANGES and value is not None:
                holds, rule = RANGES[field.name]
                require(holds(value), f"{field.name} {rule} {value}")

    @property
    def needs(self) -> Needs:
        return Needs()

    @property
    def values(self) -> ValueMeaning:
        """What the critic's values estimate, where there is a critic."""
        return ValueMeaning()

    @property
    def credit_kind(self) -> CreditKind | None:
        """Granularity and methodology of its credit, for reports; None: it does not say."""
        return None

    @property
    def sampling(self) -> Sampling:
        """Its field ``group``, where it has one, is how many episodes of a task are played."""
        return Sampling(group=getattr(self, "group", 1))

    def branch(self, fork: ForkPoint, rng: random.Random) -> int:
        """How many extra actions to sample at this state while rolling out."""
        return 0

    @abstractmethod
    def credit(self, batch: Batch, old: Forward) -> Credit:
        """Group statistics, advantages and weights: once per batch, without gradient.

        ``old`` is the trainer's own forward before the first update; ``batch.old_logp_T`` are its log-probabilities, or
        those of the policy that played.
        """

    @abstractmethod
    def loss(self, batch: Batch, new: Forward, credit: Credit, /) -> Loss:
        """The loss over the whole ``batch`` under the current parameters: once per epoch, with gradient."""

    def moments(self, batch: Batch, credit: Credit) -> Any:
        """Of what this batch contributes to the normalisation of an update's advantages, for `Needs.moments`: `Moments`
        or what else adds up over the parts.
        """
        raise NotImplementedError

    def scaled(self, batch: Batch, credit: Credit, over: Any) -> Credit:
        """The credit with advantages normalised by ``over``, the moments of the whole update."""
        raise NotImplementedError

    def critic_only(self, batch: Batch, new: Forward) -> Tensor | None:
        """The critic's part of the loss, with targets from ``new``, for `Needs.replay`; None without a critic."""
        return None

    def action_advantage(self, batch: Batch, credit: Credit) -> Tensor | None:
        """adv_A: what each action is credited with before the first update, for the record; None: no such number."""
        return None


Acts = Mapping[str, tuple[Callable[[Any], bool], str]]
"""Settings that act under a condition only: whether it holds for an algorithm, and the condition in words."""


def idle(settings: Any) -> dict[str, str]:
    """The settings with another value than their default that have no effect beside the others, and what they need.

    A class says in ``ACTS`` which of its fields act under a condition; its bases' rules hold too.
    """
    found: dict[str, str] = {}
    rules = [(name, rule) for kind in type(settings).__mro__ for name, rule in vars(kind).get("ACTS", {}).items()]
    defaults = type(settings)()
    for field in fields(settings):
        value = getattr(settings, field.name)
        if is_dataclass(value):
            found |= {f"{field.name}.{name}": need for name, need in idle(value).items()}
        elif value != getattr(defaults, field.name):
            found |= {name: need for name, (acts, need) in rules if name == field.name and not acts(settings)}
    return found


class JudgedAlgorithm(Algorithm[Credit]):
    """An algorithm whose actions a judge labels before the update."""

    without_judge: ClassVar[str] = ""
    """The flag that switches the judge off, without dashes and prefix; empty where there is none."""

    def asked(self, return_L: Tensor, tree_L: Tensor, visit_L: Tensor) -> Tensor:
        """asked_L: the finished episodes that the judge labels, of all that an update played.

        ``tree_L`` numbers their tasks; ``visit_L`` is how often each task came before.
        """
        return torch.ones_like(tree_L, dtype=torch.bool)

    def judge_score(self, return_L: Tensor, tree_L: Tensor) -> Tensor:
        """score_L: how each episode went, as the judge reads it; positive is good."""
        return (return_L - 0.5) * 2


Function = TypeVar("Function", bound=Callable[..., Any])


def without_gradient(function: Function) -> Function:
    """``torch.no_grad`` as a decorator that imports torch when the function is called, not when it is defined."""

    @wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        with torch.no_grad():
            return function(*arguments, **named)

    return wrapped  # type: ignore[return-value]


def require(holds: bool, message: str) -> None:
    """Raises ValueError with ``message`` unless ``holds``; for hyper-parameters."""
    if not holds:
        raise ValueError(message)


def require_choice(value: str, kind: type[StrEnum]) -> None:
    """Raises ValueError, naming the choices, unless ``value`` is one of ``kind``."""
    choices = [choice.value for choice in kind]
    require(value in choices, f"{kind.__name__} must be one of {', '.join(choices)}, not {value!r}")


def reference_logp(batch: Batch) -> Tensor:
    """The reference's log-probabilities. Raises ValueError when the batch has none."""
    if batch.ref_logp_T is None:
        raise ValueError("a KL coefficient needs the log-probabilities of the reference: the batch has no ref_logp_T")
    return batch.ref_logp_T


def state_values(forward: Forward, who: str) -> Tensor:
    """value_S in float64. Raises ValueError, for ``who`` needs them, when there are none."""
    if forward.value_S is None:
        raise ValueError(f"{who} needs values: pack the batch with a critic prompt")
    return forward.value_S.double()


def floats(**stats: Tensor | float) -> dict[str, float]:
    """Plain, detached numbers for `Loss.stats`."""
    tensors = {name: x.detach().double().reshape(()) for name, x in stats.items() if isinstance(x, torch.Tensor)}
    # A GPU is waited for once, not once for each of them.
    read = dict(zip(tensors, torch.stack(list(tensors.values())).tolist(), strict=True)) if tensors else {}
    return {name: read.get(name, x) for name, x in stats.items()}


_SHARE = (lambda x: 0 <= x <= 1, "must lie in 0..1, not")
_ABOVE_0 = (lambda x: x > 0, "must be above 0, not")
_NOT_NEGATIVE = (lambda x: x >= 0, "must not be negative, but is")
RANGES: dict[str, tuple[Callable[[float], bool], str]] = {
    "group": (lambda x: x >= 1, "must be at least 1, not"),
    "discount": _SHARE,
    "gae_lambda": _SHARE,
    "clip": (lambda x: 0 < x < 1, "must lie between 0 and 1, not"),
    "clip_low": _SHARE,
    "clip_high": _NOT_NEGATIVE,
    "dual_clip": (lambda x: x > 1, "must be above 1, not"),
    "std_eps": _NOT_NEGATIVE,
    "length_norm": _ABOVE_0,
    "value_coef": _NOT_NEGATIVE,
    "value_clip": _ABOVE_0,
    "kl_coef": _NOT_NEGATIVE,
}
"""Settings that most algorithms have, by their usual names. A name means the same in every algorithm that has it."""


def require_company(group: int) -> None:
    """Raises ValueError for a group in which an episode would be alone."""
    require(group >= 2, f"group must be at least 2, not {group}: one episode alone has nothing to compare with")
