"""A run is begun in a fresh folder, or resumed from its newest sound checkpoint."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from runners.command_line.errors import UserError
from runners.command_line.outputs import writing
from runners.command_line.parse import named
from runners.command_line.plain import differences, dump_json, finite
from runners.run_folder import checkpoint
from runners.run_folder.checkpoint import STATE
from runners.run_folder.folder import fresh_folder
from runners.run_folder.runs import BASE, CONFIG, SavedRun, read_run, resolved
from runners.settings import pretrained
from runners.settings.run_settings import RunSettings
from runners.training.generators import seed_all
from runners.training.report import versions
from runners.training.run import Training

VERSIONS = "versions.json"


def begin(settings: RunSettings, console: Console, argv: Sequence[str] = ()) -> Training:
    """A new run, which ``argv`` asked for. Raises UserError."""
    settings = resolved(settings, console)
    train = settings.train
    named_base = pretrained.base_of(train.model, train.init_from)
    preset = pretrained.preset_of(train.model, train.init_from)
    if named_base is not None and preset is not None:
        values = {**vars(train), **{f"lora.{name}": value for name, value in vars(settings.lora).items()}}
        line = pretrained.shown(values, preset, named_base, *named(argv))
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    seed_all(train.seed)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    place = train.out or Path("runs") / f"{train.envs}-{train.algo}-{train.seed}-{stamp}"
    with fresh_folder(place) as folder:
        training = Training(settings, folder, console)
        base = {
            "source": training.source,
            "fingerprint": training.reference,
            "parameters": training.model.base_size,
        }
        texts = {CONFIG: settings.written(), BASE: dump_json(base), VERSIONS: dump_json(versions())}
        try:
            with writing(folder, "; make room, or name another folder with --out"):
                for name, text in texts.items():
                    (folder / name).write_text(text, "utf-8")
        except BaseException:
            training.opened.close()  # it holds the folder
            raise
    console.print(f"run folder: {folder}", soft_wrap=True, highlight=False, markup=False)
    return training


def resume(folder: Path, console: Console) -> Training:
    """The run in ``folder``, from its newest sound checkpoint. Raises UserError."""
    run = read_run(folder)
    chosen = run.newest(console)
    if (run.folder / "summary.json").exists():
        raise UserError(f"{run.folder} has ended; a new run can begin from what it learned with --init-from")
    for line in (*other_versions(run.folder / VERSIONS), *other_settings(run, chosen)):
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    console.print(f"resuming from {chosen}", soft_wrap=True, highlight=False, markup=False)
    checkpoint.clear_unfinished(run.checkpoints)
    return Training(run.settings, run.folder, console, resume=chosen)


def other_versions(file: Path) -> Iterator[str]:
    """What is said where a run goes on under other versions than it was begun with."""
    try:
        then = json.loads(file.read_text("utf-8"))
        if not isinstance(then, dict):
            raise ValueError
    except (OSError, ValueError):
        yield f"{file} is missing or damaged: under other versions than before, the last bits may differ"
        return
    for name, now in versions().items():
        if then.get(name) != now:
            yield f"{name} was {then.get(name)}, is {now}: the last bits may differ"


def other_settings(run: SavedRun, checkpoint: Path) -> Iterator[str]:
    """What is said where config.yaml is not what it was when the checkpoint was written."""
    then = json.loads((checkpoint / STATE).read_text("utf-8")).get("settings")
    changed = [] if then is None else list(differences(then, finite(run.settings.plain())))
    if changed:
        yield f"{run.folder / CONFIG} was changed, and the run goes on with what it says now: {', '.join(changed)}"
