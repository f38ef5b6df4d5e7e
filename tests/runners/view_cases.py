"""A small recorded run, written by the program's own Report: a chain with values, a group, faults, and hostile text."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from transformers import PreTrainedTokenizerFast

from agent_envs.core import Task
from agent_envs.isolation.faults import FaultKind, Stage
from agents.text.chat import Chat
from agents.tiny.tokenizer import build_tokenizer
from agents.tree import Kind, Node
from agents.tree.episode import Episode, Fault, Job
from runners.command_line.parse import parse
from runners.command_line.plain import dump, dump_json
from runners.settings.run_settings import parts_of
from runners.settings.train_settings import Train
from runners.training.credited import Credited
from runners.training.report import Report

ATTACK = (
    '</script></style><img src="data:," onerror="window.hacked=1"><script>window.hacked=1</script><!-- {{script}} &lt;'
)
SNEAKY = "abc\u202edesrever\u202c \u200bzero \x1b[31mred\x00\x07 \u2028 end"
QUESTION_ZH = "哈库卡乔的总裁是谁？"
SYSTEM = "Answer the question."
METRICS = {"success": 0.5, "reward": 0.5, "entropy": 0.25, "kl": 0.01, "grad_norm": 1.5}

Turn = tuple[str, str, float]
"""(action, observation, reward); the last turn of an episode ends it."""


def tokenizer() -> PreTrainedTokenizerFast:
    texts = [SYSTEM, QUESTION_ZH, "Who leads it?", "SEARCH(it)", "SUBMIT(Ann)", "a page about it", SNEAKY, ATTACK]
    return build_tokenizer(texts * 9, ["Ann", "Bob"])


def episode(
    chat: Chat,
    task: Task,
    sample: int,
    turns: Sequence[Turn],
    *,
    success: bool,
    truncated: bool = False,
    attempt: int = 0,
) -> Episode:
    root = Node(Kind.STATE, chat.prompt(SYSTEM, task.prompt))
    played = Episode(
        Job(task, sample, attempt=attempt), root, prompt=(SYSTEM, task.prompt), metrics={"right": float(success)}
    )
    for i, (action, observation, reward) in enumerate(turns):
        last = i == len(turns) - 1
        tokens = (*chat.encode(action), chat.end_id)
        logp = tuple(-0.1 * (1 + n % 7) for n in range(len(tokens)))
        made = Node(Kind.ACTION, tokens, logp=logp, entropy=logp[::-1], reward=reward, version=3)
        seen = () if last else chat.observation(observation, closed=True)
        state = Node(Kind.STATE, seen, terminated=last and not truncated, truncated=last and truncated)
        if last:
            state.success = success
        played.end.add(made).add(state)
        played.turns.append((made, state))
        played.texts.append((action, observation))
    if not turns:
        root.truncated, root.success = True, False
    return played


@dataclass(frozen=True)
class Recorded:
    """The run folder, and what was written into it."""

    folder: Path
    chain: Episode
    group: list[Episode]
    """The episodes of one task, without the one that broke."""
    fault: Fault
    empty: Episode
    lines: int


def record(folder: Path) -> Recorded:
    """Writes a run of two updates into ``folder``, with its tokenizer beside it."""
    folder.mkdir()
    made = tokenizer()
    made.save_pretrained(folder.parent / "model")
    chat = Chat(made)
    train, parts = parse(Train, parts_of, ["--env", "identity", "--out", str(folder), "--seed", "7"], about="")
    (folder / "config.yaml").write_text(dump(train, parts), "utf-8")
    (folder / "base.json").write_text(dump_json({"source": str(folder.parent / "model")}), "utf-8")
    hostile = Task("t-hostile" + ATTACK, "train", "Who leads it? " + ATTACK, level=2)
    chain = episode(
        chat,
        hostile,
        0,
        [("SEARCH(it)", ATTACK, 0.0), ("SEARCH(Ann)", SNEAKY, -0.25), ("SUBMIT(Ann)", "", 1.0)],
        success=True,
    )
    task = Task("t-zh", "train", QUESTION_ZH, language="zh", level=1)
    look, page = "SEARCH(it)", "a page about it"
    right, wrong = ("SUBMIT(Ann)", "", 1.0), ("SUBMIT(Bob)", "", 0.0)
    group = [
        episode(chat, task, 0, [(look, page, 0.0), right], success=True),
        episode(chat, task, 1, [(look, page, 0.0), wrong], success=False),
        episode(chat, task, 2, [(look, page, 0.0), right], success=True, attempt=1),
        episode(chat, task, 4, [("SEARCH(Bob)", "nothing", 0.0), (look, page, 0.0)], success=False, truncated=True),
    ]
    fault = Fault(Job(task, 3), FaultKind.HUNG, Stage.STEP, f"no answer in 5 s {ATTACK}")
    empty = episode(chat, Task("t-long", "train", "Who leads it?"), 0, [], success=False)
    credited = {
        chain.job.id: Credited((0.5, 0.625, 0.75, 0.875), (0.5, 0.25, -0.125)),
        **{e.job.id: Credited(None, tuple(1.0 if e.success else -1.0 for _ in e.turns)) for e in group},
    }
    with Report(folder, 2, Console(file=io.StringIO(), width=80)) as report:
        for mode in ("sampled", "greedy"):
            report.evaluation(0, "test", mode, {"mean": 0.5, "low": 0.25, "high": 0.75}, 1.5)
        report.outcomes(1, [chain, empty], credited)
        report.update(1, {**METRICS, "seconds": 3.0})
        report.outcomes(2, [*group[:3], fault, group[3]], credited)
        report.update(2, {**METRICS, "explained_variance": float("nan"), "seconds": 6.0})
    return Recorded(folder, chain, group, fault, empty, lines=7)
