"""The commands of README.md, CONTRIBUTING.md and docs/ run as they stand, page by page and in order, on an empty cache.

Budgets are small (``TURNWISE_BUDGET=small``). `turnwise` begins warm, in a process forked from one that has imported
what it needs (tests/test_wheel.py starts it as a reader does). A command that cannot run here is listed with its
reason, and the list is exactly what is skipped.
"""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from warm_programs import serving

from runners.command_line.small_budget import VARIABLE

pytestmark = pytest.mark.runs
TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")))
INSTALLS, SUITE = "installs this project with its dependencies", "is the test suite itself, or a part of it"
SKIPPED = {
    "pip install -e .": INSTALLS,
    "pip install -e '.[math]'": INSTALLS,
    "pip install -e '.[dev]'": INSTALLS,
    "python -m pytest -m gpu tests/agents tests/runners": "needs a GPU",
    "make test": SUITE,
    "make test-runs": SUITE,
    "make test-adapters": SUITE,
    "make test-walls": SUITE,
    "make check": SUITE,
    "make format": "rewrites the repository",
    ".ci/run": SUITE,
    "python -m pytest tests/agent_envs/code/tasks": SUITE,
    "python -m agent_envs.code.tasks.bugs": "rewrites the repository; tests/long/test_code_tasks.py runs it",
    "turnwise train --model path/to/an/instruct-model": "the reader's own model",
    "turnwise train --env gym --gym.id Blackjack-v1 --gym.actions stick hit --model path/to/an/instruct-model": (
        "the reader's own model"
    ),
    "turnwise play --env textworld_express --textworld-express.game mapreader": "needs Java",
    "turnwise serve-mcp --env wiki": "serves until its client ends; tests/runners/test_serve_mcp.py runs it",
    "pip install -e '.[trl]'": INSTALLS,
    "pip install -e '.[verifiers]'": INSTALLS,
    "pip install -e '.[openenv]'": INSTALLS,
    "vf-eval turnwise-verifiers --env.taskset.env wiki --env.taskset.split test -m MODEL "
    "--client.base-url http://127.0.0.1:8000/v1 -n 100 --no-push": "another program, and a server of the reader's",
    "turnwise serve-openenv --env wiki --split train --port 8000": (
        "serves until it is interrupted; tests/clients/test_for_openenv.py runs it"
    ),
    'turnwise doctor --model path/to/an/instruct-model --gpu "RTX 4090"': "the reader's own model",
    "turnwise evaluate --env code --code.source HumanEval.jsonl --model runs/repair": "a file that is not shipped",
    "turnwise evaluate --env wiki --wiki.backend live --wiki.contact me@example.org --wiki.source questions.jsonl "
    "--model path/to/an/instruct-model": "the reader's own model, and Wikipedia",
    "turnwise evaluate --env wiki --wiki.backend zim --wiki.path wikipedia.zim --wiki.source questions.jsonl "
    "--model path/to/an/instruct-model": "the reader's own model, and a file that is not shipped",
    "turnwise train --env wiki --wiki.backend zim --wiki.path wikipedia.zim --wiki.crawl 2000 --out runs/own": (
        "a file that is not shipped"
    ),
    "turnwise train --env wiki --wiki.backend live --wiki.api-url https://wiki.example.org/w/api.php "
    '--wiki.crawl 500 --wiki.starts "Main page"': "a wiki of the reader's",
    "export TURNWISE_KEY_API_EXAMPLE_COM=…": "the reader's own key",
    "turnwise train --algo adca --judge.kind endpoint --judge.base-url https://api.example.com/v1 --judge.model NAME": (
        "an endpoint of the reader's"
    ),
    "turnwise evaluate --endpoint https://api.example.com/v1 --model NAME --env wiki math --tasks 100": (
        "an endpoint of the reader's"
    ),
    "turnwise evaluate --endpoint http://127.0.0.1:8000/v1 --model NAME --env wiki --served.tools": (
        "a server of the reader's"
    ),
    "turnwise bench --suite wiki-1 --endpoint http://127.0.0.1:8000/v1 --model NAME": "a server of the reader's",
    "python benchmarks/search_budget.py --run runs/game24-critic --name game24 --budgets 2 4 6 --valid-tasks 167 "
    "--samples 16": "writes benchmarks/results/; tests/benchmarks run the programs that measure",
}
"""Command → why it is not run here."""
MOST_SECONDS = 1800
"""Of a page; on two idle cores all of them together take a few minutes."""
FILES = {
    "docs/add-an-env.md": {"python": "lift.py", "toml": "pyproject.toml"},
    "docs/add-an-algorithm.md": {"python": "turnwise_imitation.py", "toml": "pyproject.toml"},
}
"""Files that a page has its reader write: the first block of that language."""


def blocks_of(text: str, language: str) -> list[str]:
    """The code blocks of a page, without their indentation."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```", text, re.DOTALL | re.MULTILINE)
    return [textwrap.dedent(block) for _, block in found]


def commands_of(text: str) -> list[str]:
    """The commands of a page in their order, each in one line and without its comment."""
    lines = "\n".join(blocks_of(text, "sh")).replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in (re.sub(r"(^|\s)#.*$", "", line) for line in lines) if line.strip()]


@dataclass(frozen=True)
class Place:
    """Where a reader sits: an environment of their own with Turnwise in it, and an empty cache."""

    folder: Path

    def make(self) -> "Place":
        venv = [sys.executable, "-m", "venv", "--without-pip", str(self.folder / "env")]
        subprocess.run(venv, check=True, timeout=120)
        bin_, where = self.folder / "env" / "bin", "import sysconfig; print(sysconfig.get_path('purelib'))"
        asked = subprocess.run([bin_ / "python", "-c", where], capture_output=True, text=True, check=True)
        # The dependencies are those of the environment that tests run in.
        (Path(asked.stdout.strip()) / "turnwise.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
        asks = f"sys.path.append({str(TESTS)!r})\nfrom warm_programs import ask"
        program(bin_ / "turnwise", f"{bin_ / 'python'} -IS", asks, f"ask({str(self.socket)!r}, sys.argv[1:])")
        program(bin_ / "pip", f"{bin_ / 'python'}", "from pip._internal.cli.main import main", "main()")
        return self

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    @property
    def environ(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TURNWISE", "PYTHON", "VIRTUAL_ENV", "COV"))}
        path = f"{self.folder / 'env' / 'bin'}{os.pathsep}{kept['PATH']}"
        own = {"PATH": path, "HOME": str(self.folder), "XDG_CACHE_HOME": str(self.folder / "cache")}
        # Without a network pip builds with what is there; the value 0 is its way to say so.
        own |= {"HF_HUB_OFFLINE": "1", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "COLUMNS": "200"}
        return kept | own | {VARIABLE: "small"}


def program(place: Path, python: str, imports: str, call: str) -> None:
    place.write_text(f"#!{python}\nimport sys\n{imports}\nsys.exit({call})\n")
    place.chmod(0o755)


@dataclass(frozen=True)
class Ran:
    """What became of a page."""

    folder: Path
    commands: Sequence[str]
    """Those that were run, the failed one last."""
    seconds: Sequence[float]
    status: int
    said: str


def run_page(place: Place, name: str, text: str) -> Ran:
    """Runs what a page tells to run, in one shell and a fresh folder, to the first command that fails."""
    folder = place.folder / "pages" / name.replace("/", "-")
    folder.mkdir(parents=True)
    for language, file in FILES.get(name, {}).items():
        (folder / file).write_text(blocks_of(text, language)[0], "utf-8")
    commands = [command for command in commands_of(text) if command not in SKIPPED]
    marked = [f"date +%s.%N >> times\n{command}" for command in commands]
    script = "\n".join(["set -eu", *marked, "date +%s.%N >> times"])
    process = subprocess.Popen(
        ["bash", "-c", script], cwd=folder, env=place.environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=MOST_SECONDS)
    finally:
        with suppress(ProcessLookupError):  # what the shell started may outlive it
            os.killpg(process.pid, signal.SIGKILL)
    times = [float(line) for line in (folder / "times").read_text().split()] if commands else []
    ends = [*times[1:], time.time()][: len(commands)]
    seconds = [end - begin for begin, end in zip(times, ends, strict=False)]
    return Ran(folder, commands[: len(seconds)], seconds, process.returncode, said)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("reader")).make()
    with serving(place.socket, place.folder / "env" / "bin" / "python", place.environ):
        yield place


@pytest.fixture(scope="module")
def ran(place: Place) -> dict[str, Ran]:
    """All pages, two at a time."""
    texts = {page: (ROOT / page).read_text("utf-8") for page in PAGES}
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(texts, pool.map(lambda page: run_page(place, page, texts[page]), texts), strict=True))


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run(ran: dict[str, Ran], page: str) -> None:
    result = ran[page]
    for command, seconds in zip(result.commands, result.seconds, strict=True):
        print(f"{seconds:6.1f} s  {command}")
    assert result.status == 0, f"{page}: {result.commands[-1]}\n{result.said[-2000:]}"
    expected = [command for command in commands_of((ROOT / page).read_text("utf-8")) if command not in SKIPPED]
    assert list(result.commands) == expected
    programs = sum(bool(re.match("turnwise (train|evaluate|compare|credit|pretrain|list|doctor)", c)) for c in expected)
    assert result.said.count(f"{VARIABLE}=small: budgets are small") >= programs, "each of them says so"


def test_what_is_skipped_is_what_is_listed() -> None:
    written = [command for page in PAGES for command in commands_of((ROOT / page).read_text("utf-8"))]
    assert set(SKIPPED) <= set(written), set(SKIPPED) - set(written)
    assert len(written) - sum(command in SKIPPED for command in written) >= 40, "most commands are run"


def test_a_misspelt_flag_fails(place: Place) -> None:
    text = "```sh\nturnwise list\nturnwise train --env identity --upates 3   # a comment\nturnwise doctor\n```\n"
    result = run_page(place, "misspelt", text)
    assert result.status == 2 and result.commands[-1] == "turnwise train --env identity --upates 3"
    assert "unknown flag --upates: did you mean --updates" in result.said


def test_the_environment_of_a_page_is_short_and_was_trained(ran: dict[str, Ran]) -> None:
    page = "docs/add-an-env.md"
    (code, *_) = blocks_of((ROOT / page).read_text("utf-8"), "python")
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 40
    result = ran[page]
    assert "turnwise train --env lift --algo selfac" in result.commands, "with no further flag"
    (run,) = (result.folder / "runs").glob("lift-selfac-0-*")
    summary = json.loads((run / "summary.json").read_text())
    assert 0 < summary["final"]["sampled"]["mean"] <= 1
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert sum(row["kind"] == "update" for row in rows) == 2
    assert re.search(r"^ +lift +.*\(turnwise-lift\)", result.said, re.MULTILINE), "turnwise list names it"
    assert "base" in result.said and "trained" in result.said, "evaluate measures both"
