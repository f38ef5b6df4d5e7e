"""From a run folder to an export that was loaded again and compared."""

import shutil
from functools import partial
from pathlib import Path

from rich.console import Console

from agents.model.separate_critic import SeparateActorCritic
from runners.command_line.errors import UserError
from runners.command_line.outputs import check_folder, writing
from runners.exporting import card, folder
from runners.loading.base_model import actor_of, device_of, load_base
from runners.run_folder.folder import fresh_folder
from runners.run_folder.runs import base_of, locate
from runners.training.report import versions


def export(path: Path, place: Path | None, console: Console, *, merge: bool = False, device: str = "cpu") -> Path:
    """Writes the folder ``place``, by default one in the run's, and returns it.

    ``path`` is a run folder or one of its checkpoints. Raises UserError; what it began to write is then removed.
    """
    run, checkpoint = locate(path, console)
    if run.train.quantize != "none":
        raise UserError(
            f"{run.folder} was trained with --quantize, whose weights take no merge and whose layers other programs "
            f"compute in another way: its adapter alone is in {checkpoint}, as peft writes it"
        )
    place = place or run.folder / ("merged" if merge else "export")
    check_folder(place)
    on = device_of(device)
    spec = base_of(run.settings, console, device)
    base = load_base(spec)
    run.check(base)
    fingerprint, dtype = base.fingerprint, base.model.dtype
    public = None if spec.merged or Path(spec.source).is_dir() else spec.source
    with fresh_folder(place) as out:
        written = partial(writing, out, "; make room, or name another folder with --out")
        local = None
        if not merge and public is None:
            local = out / folder.BASE
            with written():
                folder.write_base(base, local)
        actor, prompt = actor_of(base, run.settings)
        actor.load(checkpoint)
        probe = folder.ask(actor, base.chat, prompt)
        head, separate = actor.value_head is not None, isinstance(actor, SeparateActorCritic)
        with written():
            if merge:
                folder.write_merged(actor, base, out)
            else:
                folder.write_adapter(actor, base, public or folder.BASE, out)
        del actor, base  # two models of a kind may not fit
        checked = folder.check(out, probe, dtype, on, None if merge else str(local or public))
        curve = run.folder / "curve.png"
        drawn = curve.is_file() and not curve.is_symlink()  # a stranger's run could name any file
        contents = card.Contents(merge, public, head, separate, drawn)
        critic = {"settings": run.settings.critic, "prompt_tokens": prompt} if head else None
        with written():
            if drawn:
                shutil.copyfile(curve, out / curve.name)
            (out / "README.md").write_text(card.card(run, checkpoint, contents, fingerprint, checked), "utf-8")
            folder.write_details(
                out,
                {
                    "env": run.settings.plain()["env"],
                    "algorithm": run.train.algo,
                    "checkpoint": checkpoint.name,
                    "base_fingerprint": fingerprint,
                    "temperature": run.train.temperature,
                    "critic": critic,
                    "versions": versions(),
                    "check": checked,
                },
            )
    value = "" if checked.value is None else f", the value by {checked.value:.1e}"
    console.print(
        f"checked: loaded by transformers{'' if merge else ' and peft'}, log-probs of {checked.tokens} tokens "
        f"differ by at most {checked.logp:.1e}{value}",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    return out
