"""Settings of the tiny model. Imports no torch: the command line needs them."""

from dataclasses import dataclass, field

from agent_envs.ranges import check_ranges
from agents.text.settings import CRITIC_TEXT
from agents.tiny.settings import TinySettings

TINY = "tiny"
"""What ``--model`` calls it."""


@dataclass(frozen=True)
class PretrainSettings:
    """The tiny model: a behaviour-cloned transformer, from the package or made on the spot."""

    seed: int = 0
    """Seed of the weights, the demonstrations and their order."""
    flaw: float = 0.65
    """Probability of the demonstrator's systematic mistake, wherever it can be made."""
    demonstrations: int = 15000
    """Episodes of the scripted expert on training tasks; of each environment, where there are several."""
    steps: int = 2000
    """Gradient steps; this many for each environment, where there are several."""
    batch: int = 8
    """Demonstrations per step."""
    muon_lr: float = 0.02
    """Peak learning rate of the matrices inside the layers (Muon)."""
    adam_lr: float = 4e-3
    """Peak learning rate of everything else (AdamW)."""
    warmup: int = 50
    """Steps of linear warm-up; after them the rates fall linearly to a twentieth."""
    drills: float = 0.1
    """Share of each batch taken by the environment's reading exercises, where it has some."""
    drill_texts: int = 0
    """Number of texts with reading exercises; 0 is as many as demonstrations."""
    read: float = 0.0
    """Weight of predicting each next token of those texts, for environments in which the agent looks for what is out of
    place in a text."""
    recall: float = 0.0
    """Weight of recalling, after the critic prompt, the last tokens before it: a tiny model that never learned to
    attend to them cannot value a state. The answering layer is then discarded."""
    predict: float = 0.0
    """Weight of predicting, after the critic prompt, the demonstration's success and the oracle's chance of success. A
    critic can only see a mistake that the model has learned to notice."""
    recall_prompt: str = CRITIC_TEXT
    """The critic prompt of recall and predict: the one that the critic will have (``--critic.prompt``)."""
    recall_bare: bool = False
    """Every other step, recall without a critic prompt, so that critics with and without one begin alike."""
    shape: TinySettings = field(default_factory=TinySettings)
    """Shape of the transformer."""
    fresh: bool = False
    """Make it here, or take it from the cache, where the package has one that was made with these settings."""

    def __post_init__(self) -> None:
        weights = dict.fromkeys(("read", "recall", "predict"), (0, 1e6))
        rates = dict.fromkeys(("muon_lr", "adam_lr"), (0, 100))
        counts = dict.fromkeys(("demonstrations", "steps"), (1, 10_000_000))
        bounds = {**weights, **rates, **counts, "seed": (0, 2**63 - 1), "drill_texts": (0, 10_000_000)}
        check_ranges(self, ValueError, "pretrain: ", **bounds, batch=(1, 65_536), warmup=0, flaw=(0, 1), drills=(0, 1))
        if self.drill_texts and not self.drills:
            raise ValueError("pretrain: drill_texts only works with drills above 0")
        if self.read and not self.drills:
            raise ValueError("pretrain: read only works with drills above 0")
        if self.recall_prompt != CRITIC_TEXT and not (self.recall or self.predict):
            raise ValueError("pretrain: recall_prompt only works with recall or predict above 0")
        if self.recall_bare and not (self.recall and self.recall_prompt):
            raise ValueError("pretrain: recall_bare only works with recall above 0 and a recall_prompt")
