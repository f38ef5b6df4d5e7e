"""One whole GRPO step, of this project and of TRL, on the same model and the same numbers of tokens.

    python -m venv .venv-trl
    echo "$PWD/.venv/lib/python3.11/site-packages" > .venv-trl/lib/python3.11/site-packages/turnwise.pth
    .venv-trl/bin/python -m pip install trl==1.16.0
    .venv-trl/bin/python benchmarks/trl.py --out benchmarks/results/trl.json

Both have the same linear layers, sample 128 tokens for each of 8 answers to prompts of 60 tokens, take the same reward,
and make one step of AdamW on LoRA of rank 8. No token ends an answer, so all answers are as long. TRL's steps and ours
take turns inside TRL's own loop. Once with one prompt a step, once with four. Exits with 1 when a condition fails.
"""

import gc
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module, util
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import tyro
from peft import LoraConfig
from rich.console import Console
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast, TrainerCallback

from agents.model.attention.onednn_linear import WideLinear, widen
from agents.model.settings import LoraSettings
from benchmarks.sampled import endless
from benchmarks.single_turn import GROUP, LEARNING_RATE, Ours, Shape, Split, prompts, reward
from benchmarks.timing import Spread, finish, one_thread, print_table, ratio
from benchmarks.variants import VOCABULARY, base_model

VERSION = "1.16.0"
AT_LEAST = 2.0
"""How many times as long as our step TRL's must take."""
TRL, OURS = "TRL", "ours"


@dataclass(frozen=True)
class TRLCost:
    """Compare a GRPO step with TRL's."""

    rounds: int = 5
    """Steps of each that are measured, after a first one."""
    quick: bool = False
    """Few tokens and rounds on a smaller model: shows that the program runs, and nothing else."""
    out: Path = Path("benchmarks/results/trl.json")
    """File for the result."""


def tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """Numbers as words. Its end token lies after the model's vocabulary, so it is never sampled."""
    words = {"<pad>": 0} | {str(i): i for i in range(1, vocabulary)} | {"<end>": vocabulary}
    whole = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    whole.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=whole, eos_token="<end>", pad_token="<pad>", padding_side="left")


class _Turns(TrainerCallback):
    """Lets the others make a step after each of TRL's."""

    def __init__(self, others: Mapping[str, Callable[[], Split]]) -> None:
        self.others = others
        self.clock: dict[str, float] = {}
        self.read = self.sampled = 0
        self.began = 0.0
        self.splits: dict[str, list[Split]] = {name: [] for name in (TRL, *others)}

    def on_train_begin(self, *args: Any, **others: Any) -> None:
        gc.disable()  # a collection would be charged to whichever side is at work
        self.start()

    def on_train_end(self, *args: Any, **others: Any) -> None:
        gc.enable()

    def on_step_end(self, *args: Any, **others: Any) -> None:
        whole = time.process_time() - self.began
        generation = self.clock["generate"]
        learning = self.clock["step"] - self.clock["inputs"]
        trained = self.read + self.sampled
        split = Split(generation, learning, whole - generation - learning, self.read, self.sampled, trained)
        self.splits[TRL].append(split)
        for name, step in self.others.items():
            self.splits[name].append(step())
        self.start()

    def start(self) -> None:
        self.clock = dict.fromkeys(("generate", "step", "inputs"), 0.0)
        self.read = self.sampled = 0
        gc.collect()
        self.began = time.process_time()

    def timed(self, trainer: Any, method: str, name: str) -> None:
        """Adds the time of a method of the trainer to the clock."""
        original = getattr(trainer, method)

        def around(*args: Any, **kwargs: Any) -> Any:
            if name == "generate":
                self.read += sum(map(len, args[0]))
            started = time.process_time()
            try:
                return original(*args, **kwargs)
            finally:
                self.clock[name] += time.process_time() - started

        setattr(trainer, method, around)


def widened(size: str) -> PreTrainedModel:
    """The model on the linear layers that the project trains it on, in C where it has them in C; TRL gets them too."""
    model = base_model(size).eval()
    widen(model)
    for layer in model.modules():
        if isinstance(layer, WideLinear):
            layer.compiled = True
    return model


def steps(shape: Shape, size: str, rounds: int, folder: str) -> dict[str, list[Split]]:
    """``rounds`` steps of each, after one that is not counted."""
    trl, datasets = import_module("trl"), import_module("datasets")
    others = {OURS: Ours(widened(size), shape)}
    turns = _Turns({name: ours.step for name, ours in others.items()})

    def scores(prompts: list[str], completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        turns.sampled += sum(map(len, completion_ids))
        return [reward(text) for text in completions]

    lora = LoraSettings()
    trainer = trl.GRPOTrainer(
        model=endless(widened(size)),
        processing_class=tokenizer(VOCABULARY),
        reward_funcs=[scores],
        train_dataset=datasets.Dataset.from_list([{"prompt": x} for x in prompts(4096, shape, VOCABULARY)]),
        peft_config=LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=lora.targets, task_type="CAUSAL_LM"),
        callbacks=[turns],
        args=trl.GRPOConfig(
            output_dir=folder,
            use_cpu=True,
            bf16=False,
            fp16=False,
            per_device_train_batch_size=shape.answers,
            num_generations=GROUP,
            max_completion_length=shape.answer,
            max_steps=rounds + 1,
            learning_rate=LEARNING_RATE,
            beta=0.0,
            gradient_checkpointing=False,
            logging_strategy="no",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        ),
    )
    turns.timed(trainer, "_generate_single_turn", "generate")
    turns.timed(trainer, "training_step", "step")
    turns.timed(trainer, "_prepare_inputs", "inputs")
    trainer.train()
    return {name: result[1:] for name, result in turns.splits.items()}


def summary(shape: Shape, found: Mapping[str, Sequence[Split]]) -> dict[str, Any]:
    """Medians and spreads of all rows."""
    whole = {name: [split.step for split in splits] for name, splits in found.items()}
    return {
        "asked": shape.sampled,
        "to_read": shape.read,
        "rows": {
            name: {
                "generation": asdict(Spread.of([s.generation for s in splits])),
                "learning": asdict(Spread.of([s.learning for s in splits])),
                "rest": asdict(Spread.of([s.rest for s in splits])),
                "step": asdict(Spread.of(whole[name])),
                "tokens_per_s": shape.sampled / Spread.of(whole[name]).median,
                "times": asdict(ratio(whole[TRL], whole[name])),
                "sampled": sorted({s.sampled for s in splits}),
                "read": sorted({s.read for s in splits}),
                "trained": max(s.trained for s in splits),
            }
            for name, splits in found.items()
        },
    }


def conditions(results: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, bool]]:
    """What must hold, each with whether it does."""
    for title, result in results.items():
        for name, row in result["rows"].items():
            same = (row["read"], row["sampled"]) == ([result["to_read"]], [result["asked"]])
            yield f"{title}, {name}: reads {result['to_read']} and samples {result['asked']} tokens a step", same
        times = result["rows"][OURS]["times"]["median"]
        yield f"{title}: TRL's step takes {times:.2f} times ours, at least {AT_LEAST}", times >= AT_LEAST


def show(results: Mapping[str, Mapping[str, Any]], console: Console) -> None:
    columns = ("", "generation", "learning", "rest", "step", "tokens/s", "TRL takes … times", "trained tokens")
    for title, result in results.items():
        rows = []
        for name, row in result["rows"].items():
            spreads = [Spread(**row[key]) for key in ("generation", "learning", "rest", "step")]
            times = Spread(**row["times"])
            rows.append((name, *(x.median for x in spreads), f"{row['tokens_per_s']:.0f}", times, row["trained"]))
        print_table(f"{title}, seconds of process time", columns, rows, console)


def check_installed() -> None:
    """Exits with 2 and one line when TRL is not there, or is another version."""
    result = import_module("trl").__version__ if util.find_spec("trl") else "none"
    if result != VERSION:
        line = f"this compares with TRL {VERSION}, here is {result}: pip install trl=={VERSION} (see the first lines)"
        print(line, file=sys.stderr)
        sys.exit(2)


def main() -> None:
    settings = tyro.cli(TRLCost)
    check_installed()
    one_thread()
    console = Console()
    size, rounds = ("2M", 2) if settings.quick else ("5M", settings.rounds)
    short = {"prompt": 10, "answer": 8} if settings.quick else {}
    results = {}
    for groups in (1, 2) if settings.quick else (1, 4):
        shape = Shape(groups, **short)
        with TemporaryDirectory(prefix="turnwise-trl-") as folder:
            title = f"{groups} x {GROUP} answers, prompts of {shape.prompt}, answers of {shape.answer}, {size}"
            results[title] = summary(shape, steps(shape, size, rounds, folder))
    show(results, console)
    status = finish({"steps": results, "trl": VERSION}, conditions(results), settings.out, console)
    sys.exit(0 if settings.quick else status)


if __name__ == "__main__":
    main()
