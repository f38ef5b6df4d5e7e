"""The matrix: all programs of `matrix_reach`, `matrix_limits` and `matrix_judge` on every wall, with counts.

    python tests/agent_envs/code/sandbox/matrix.py [WALL ...]      namespace landlock docker; docker needs an engine

Invariant: a program counts as held only if it ran and achieved nothing. Its control counts only if it was seen to work
where nothing holds it; where it has none, the program itself says that the attempt was made.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from attack_run import as_ordinary_user, outcome, outcomes_of
from attacks import TIGHT, Attack
from matrix_judge import trials
from matrix_kernel import KERNEL
from matrix_limits import LIMITS, SIGNALS
from matrix_reach import NAMES, READING, WRITING

from agent_envs.code.sandbox import Sandbox
from agent_envs.code.sandbox.choose import open_sandbox

FAMILIES: dict[str, list[Attack]] = {
    "reading": READING,
    "writing": WRITING,
    "names and files": NAMES,
    "limits": LIMITS,
    "signals and daemons": SIGNALS,
    "the kernel": KERNEL,
}
PROGRAMS = [attack for attacks in FAMILIES.values() for attack in attacks]
TRIALS = trials()
KNOWN: dict[str, dict[str, str]] = {
    "docker": {"the kernel and its devices in /sys": "an engine shows a /sys that cannot be written"},
}
"""What gets through, and why it may."""
USERS = ("this user", "an ordinary user")
WALLS = ("namespace", "landlock", "docker")


def judged(sandbox: Sandbox) -> dict[str, str]:
    """Outcomes of the submissions; "" is held."""
    return {f"{trial.family}: {trial.name}": trial.run(sandbox) for trial in TRIALS}


def on_wall(wall: str) -> dict[str, Any]:
    """Everything on one wall: outcomes, and what was left afterwards."""
    found = outcomes_of(wall, PROGRAMS)
    if "unavailable" not in found:
        with open_sandbox(wall, workers=1) as sandbox:
            found["outcomes"] |= judged(sandbox)
    return found


def controls() -> dict[str, bool]:
    """Whether what has a control was seen to work: a program on unsafe-process, a submission where no judge is."""
    found = {}
    with open_sandbox("unsafe-process", limits=TIGHT, workers=1) as sandbox:
        for attack in PROGRAMS:
            if attack.control:
                got = outcome(sandbox, attack, control=True)
                found[attack.name] = bool(got) and not got.startswith("NOT RUN")
    with open_sandbox("namespace", workers=1) as sandbox:
        for trial in TRIALS:
            if trial.control is not None:
                found[f"{trial.family}: {trial.name}"] = trial.control(sandbox)
    return found


def machine() -> str:
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{model[0].partition(': ')[2] if model else platform.machine()}, Linux {platform.release()}"


def through(wall: str, found: dict[str, Any]) -> dict[str, str]:
    """What got through, what did not run, and what is said to get through and does not."""
    known = KNOWN.get(wall, {})
    wrong = {name: got for name, got in found["outcomes"].items() if got and (name not in known or "NOT RUN" in got)}
    return wrong | {name: "held, though it is said not to be" for name in known if not found["outcomes"][name]}


def main(walls: list[str]) -> int:
    print(f"{len(PROGRAMS)} programs and {len(TRIALS)} submissions; {machine()}", flush=True)
    works = controls()
    failed = [name for name, worked in works.items() if not worked]
    print(
        f"controls: {len(works) - len(failed)} of {len(works)} worked", *[f"  not: {name}" for name in failed], sep="\n"
    )
    bad = len(failed)
    for wall in walls:
        for user in USERS if os.geteuid() == 0 and wall != "docker" else USERS[:1]:
            found = on_wall(wall) if user == USERS[0] else as_ordinary_user(wall, __file__)
            if "unavailable" in found:
                print(f"{wall}, {user}: not here: {found['unavailable']}")
                bad += 1
                continue
            wrong, known = through(wall, found), KNOWN.get(wall, {})
            held = sum(not got for got in found["outcomes"].values())
            print(f"{wall}, {user}: {held} of {len(found['outcomes'])} held, {len(known)} known to get through; "
                  f"left: {found['left'] or 'nothing'}", *[f"  {name}: {got[:300]}" for name, got in wrong.items()],
                  sep="\n", flush=True)  # fmt: skip
            bad += len(wrong) + len(found["left"])
    return 1 if bad else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--report"]:  # as an ordinary user, for `as_ordinary_user`
        print(json.dumps(on_wall(sys.argv[2])))
    else:
        sys.exit(main(sys.argv[1:] or list(WALLS)))
