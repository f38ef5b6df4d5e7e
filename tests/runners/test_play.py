"""A person at the terminal reads what an agent reads, and no text of an environment is obeyed by the terminal."""

import fcntl
import io
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from scripted_engine import FakeEngine

from agent_envs import registry
from agent_envs.core import TextEnv
from agent_envs.identity.env import IdentityEnv
from agent_envs.wiki.config import WikiConfig
from agents.rollout.play import rollout
from agents.text.chat import Chat
from agents.tiny.tokenizer import build_tokenizer
from agents.tree.episode import Episode, Job
from runners.command_line.errors import run_program
from runners.play import Game, main, shown, wrapped

HERE = Path(__file__).resolve().parents[2]
ESCAPE = "\x1b]0;owned\x07\x1b[31mred\x1b[2J \u202egnol\u202c [bold]markup[/bold]"
HOSTILE = f'''
"""An environment whose every text holds terminal escapes."""
from dataclasses import dataclass
from agent_envs.identity.config import IdentityConfig
from agent_envs.identity.env import IdentityEnv

TEXT = {ESCAPE!r}

@dataclass(frozen=True)
class HostileConfig(IdentityConfig):
    """Settings."""

class HostileEnv(IdentityEnv):
    name = "hostile"
    Config = HostileConfig

    def instructions(self, language):
        return TEXT

    def step(self, action):
        observation, *rest = super().step(action)
        return (TEXT + observation, *rest)
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an outside package that adds the environment ``hostile``."""
    folder = tmp_path_factory.mktemp("play")
    (folder / "hostile_env.py").write_text(HOSTILE)
    info = folder / "hostile-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hostile\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[turnwise.envs]\nhostile = hostile_env:HostileEnv\n")
    return folder


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(HERE / "runners" / "play.py"), *arguments]


def environment(place: Path) -> dict[str, str]:
    # Without TERM=dumb, readline itself talks to the terminal in escape sequences.
    return {**os.environ, "PYTHONPATH": str(place), "TERM": "dumb", "LC_ALL": "C.UTF-8"}


def piped(place: Path, lines: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    typed = "".join(f"{line}\n" for line in lines)
    return subprocess.run(
        command(*arguments),
        input=typed,
        capture_output=True,
        encoding="utf-8",
        cwd=place,
        env=environment(place),
        timeout=120,
    )


def agent(env: TextEnv, task: str, turns: Sequence[str]) -> Episode:
    """What the agent of these turns reads: played by the rollout itself."""
    made = build_tokenizer(["a b"] * 9, [])
    chat = Chat(made)

    def script(request: Any, history: tuple[int, ...]) -> tuple[int, ...]:
        done = history.count(chat.end_id) and sum(1 for r in engine.submitted) - 1
        return (*chat.encode(turns[done]), chat.end_id)

    engine = FakeEngine(script, chat.stop_ids)
    found = env.tasks("test").find(task)
    assert found is not None
    return rollout(lambda: env, engine, chat, [Job(found)]).episodes[0]


def transcript(episode: Episode) -> str:
    """The episode as the program writes it."""
    parts = [f"── system ──\n{shown(episode.prompt[0])}\n", f"── task ──\n{shown(episode.prompt[1])}\n"]
    for i, (turn, observation) in enumerate(episode.texts):
        parts.append(f"> {turn}")
        if i < len(episode.texts) - 1:
            parts.append(f"── observation ──\n{shown(observation)}\n")
    return "\n".join(parts) + "\n"


WIKI = ["SEARCH(x)", "<think>hm</think><action>BACK()</action>", "nonsense", "SUBMIT(x)"]
WIKI_ZH = ["搜索(词语)", "<think>想</think><action>返回()</action>", "胡说", "提交(甲)"]
PLAYED = {
    "wiki in English": ("wiki", "en", WIKI),
    "wiki in Chinese": ("wiki", "zh", WIKI_ZH),
}


@pytest.mark.parametrize("case", PLAYED)
def test_a_person_reads_what_an_agent_reads(case: str, place: Path) -> None:
    name, language, turns = PLAYED[case]
    settings = ("--wiki.languages", language)
    env = registry.make(name, WikiConfig(languages=(language,)))
    task = next(task for task in env.tasks("test") if task.language == language)
    episode = agent(env, task.id, turns)
    assert len(episode.turns) == len(turns)
    done = piped(place, turns, "--env", name, *settings, "--task", task.id)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    head, _, rest = done.stdout.partition("\n\n")
    assert head == f"{name}, task {task.id}; :help explains what can be typed"
    assert rest.startswith(transcript(episode)), rest
    ended = rest.removeprefix(transcript(episode))
    state = "terminated" if episode.end.terminated else "truncated"
    assert ended.startswith(f"── {state} ──\nsuccess: no, reward {episode.reward:g}, turns {len(turns)}, invalid ")
    assert f"invalid {episode.metrics['invalid']:g}" in ended
    # The negative control: another word from the environment, and the comparison fails.
    assert not rest.startswith(transcript(episode).replace("── task ──\n", "── task ──\nx"))


def test_the_same_seed_is_the_same_task() -> None:
    games = [Table([], seed).said for seed in (5, 5, *range(9))]
    assert games[0] == games[1] and any(game != games[0] for game in games)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--env", "identety"], "did you mean identity"),
        (["--env", "identity", "--task", "none"], "no task 'none'"),
        (["--env", "identity", "--split", "none"], "none"),
        (["--env", "identity", "--identity.length", "0"], "identity: "),
        (["--env", "identity", "--words", "3"], "unknown flag --words"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["play.py", *arguments])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    with pytest.raises(SystemExit) as stop:
        run_program(main)
    out, err = capsys.readouterr()
    assert stop.value.code == 2 and err.startswith("error: ") and err.count("\n") == 1, err
    assert why in err and out == ""


# -- commands --------------------------------------------------------------------------------------------------------


class Hearing(IdentityEnv):
    """Keeps what was said; its forks keep it in the same list."""

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self.said = said

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.said.append(action)
        return super().step(action)


class Table:
    """A person who types these lines, and what they saw."""

    def __init__(self, lines: Sequence[str], seed: int = 0) -> None:
        self.lines = list(lines)
        self.said: list[str] = []
        self.steps: list[str] = []
        Game(Hearing(self.steps), self.read, self.said.append).play(seed, {"split": "test"})

    def read(self) -> str:
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)


def test_no_text_is_out_of_reach_of_a_turn() -> None:
    for lines, turn in (
        (["SAY(red)"], "SAY(red)"),
        (["::quit"], ":quit"),
        ([":::undo"], "::undo"),
        ([":{", "a", ":b", "", "::}", " c ", ":}"], "a\n:b\n\n:}\n c "),
        ([":{", ":}"], ""),
        ([" :quit"], " :quit"),
        (["\\"], "\\"),
        (["", "", "x"], "x"),
    ):
        assert Table(lines).steps[0] == turn
    assert Table([":{", "lost when the input ends"]).steps == []


def test_commands_are_no_turns() -> None:
    table = Table([":help", ":hint", ":task", ":undo", ":what\x1b[2J", "", ":quit", "SAY(red)"])
    assert table.steps == [] and table.lines == ["SAY(red)"]
    said = "\n".join(table.said)
    assert "takes" not in said and "hint: <think>" in said and "no turn has been played yet" in said
    assert said.count("── task ──") == 2 and "no command :what⟨U+001B⟩[2J: :help names them" in said
    assert said.rstrip().endswith("success: no verdict, reward 0, turns 0")


def test_calls_of_tools_are_turns_where_they_are_asked_for() -> None:
    call = '{"name": "SAY", "arguments": {"word": "red"}}'
    lines, out = iter([call, '{"name": "SAY"}', "SAY(red)", ":quit"]), []
    game = Game(IdentityEnv(), lambda: next(lines), out.append)
    game.play(0, {"split": "test", "tools": True})
    written = "".join(out)
    assert '"parameters"' in written and "<action>" not in written
    assert game.now.turns == 3 and written.count("invalid action: no action\n") == 1
    game = Game(IdentityEnv(), iter([call, ":quit"]).__next__, out.append)
    game.play(0, {"split": "test"})
    assert "invalid action" in "".join(out), "the control: without tools it is no action"


def test_undo_goes_back_as_if_nothing_had_been_said() -> None:
    env = registry.make("identity")
    env.reset(seed=0, options={"split": "test"})
    right = []
    while not env._over:
        right.append(env.expert())
        env.step(right[-1])
    straight = Table(right)
    table = Table(["SAY(none)", "x", ":undo", ":undo", ":undo", right[0], "SAY(none)", ":undo", *right[1:]])
    assert table.said[-1] == straight.said[-1] and "success: yes, reward 1, turns 3" in table.said[-1]
    # The negative control: without :undo the wrong turns count.
    assert "success: no" in Table(["SAY(none)", *right]).said[-1]


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert shown("a\tb\nc 问题 é 🙂") == "a\tb\nc 问题 é 🙂"
    assert shown("\x1b[31m\r\x00\x7f\x9b\u202e\u200b\u2028\ud800") == (
        "⟨U+001B⟩[31m⟨U+000D⟩⟨U+0000⟩⟨U+007F⟩⟨U+009B⟩⟨U+202E⟩⟨U+200B⟩⟨U+2028⟩⟨U+D800⟩"
    )


# -- a real terminal -------------------------------------------------------------------------------------------------


class Terminal:
    """The program on a pseudo-terminal."""

    def __init__(self, place: Path, *arguments: str) -> None:
        self.screen, far = pty.openpty()
        self.process = subprocess.Popen(
            command(*arguments),
            stdin=far,
            stdout=far,
            stderr=far,
            cwd=place,
            env=environment(place),
            preexec_fn=self.own,
        )
        os.close(far)
        self.seen = b""

    def own(self) -> None:
        """In the child: its terminal sends it Ctrl-C, which it does not ignore even where the tests do."""
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def until(self, wanted: str, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while wanted.encode() not in self.seen:
            ready, _, _ = select.select([self.screen], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{wanted!r} did not come: {self.seen!r}"
            self.seen += os.read(self.screen, 65536)

    def idle(self) -> None:
        """Waits until the program waits: Python forgets a Ctrl-C that comes just before it begins to."""
        before, quiet = "", 0
        while quiet < 5:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            now = " ".join((fields[0], *fields[11:13]))  # state, and time spent
            quiet = quiet + 1 if now == before and fields[0] == "S" else 0
            before = now
            time.sleep(0.1)

    def type(self, text: str) -> None:
        self.seen = b""
        os.write(self.screen, text.encode())

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.screen)


@pytest.fixture
def terminals(place: Path) -> Iterator[Any]:
    opened: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        opened.append(Terminal(place, *arguments))
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def test_on_a_terminal_nothing_of_the_environment_is_obeyed(terminals: Any) -> None:
    terminal = terminals("--env", "hostile", "--seed", "0")
    terminal.until("> ")
    everything = terminal.seen
    terminal.type("SAY(red)\n")
    terminal.until("── observation ──")
    terminal.until("> ")
    everything += terminal.seen
    for part in (ESCAPE, "\x1b", "\x07", "\u202e"):
        assert part.encode() not in everything, part
    words = " ".join(everything.decode().split())  # lines are broken between words
    assert words.count("⟨U+001B⟩[31mred⟨U+001B⟩[2J ⟨U+202E⟩gnol⟨U+202C⟩ [bold]markup[/bold]") == 2
    assert ESCAPE.encode() in f"what a plain print would send: {ESCAPE}".encode()
    terminal.type("\x04")  # Ctrl-D
    terminal.until("success: no verdict, reward ")
    assert terminal.process.wait(20) == 0


def test_a_chinese_turn_on_a_terminal_and_ctrl_c(terminals: Any) -> None:
    task = registry.make("wiki", WikiConfig(languages=("zh",))).tasks("test")[0]
    terminal = terminals("--env", "wiki", "--wiki.languages", "zh", "--task", task.id)
    terminal.until(task.prompt)
    terminal.until("> ")
    terminal.type("搜索(没有这个)\n")
    terminal.until("没有结果")
    terminal.until("\r\n9 turns left> ")
    terminal.idle()
    terminal.type("\x03")  # Ctrl-C
    terminal.until("── stopped ──")
    terminal.until("turns 1")
    assert terminal.process.wait(20) == 0 and b"Traceback" not in terminal.seen


def test_lines_are_broken_between_words() -> None:
    console = Console(width=20, file=io.StringIO())
    text = "a line of several words, and one that_is_much_longer_than_a_line [bold]x[/]"
    pieces = wrapped(text, console)
    assert all(len(piece) <= 20 for piece in pieces) and pieces[0].strip() == "a line of several"
    assert "".join(pieces).replace(" ", "") == text.replace(" ", ""), "nothing is lost, and no markup is obeyed"
    assert wrapped("", console) == [""]
    assert all(cell_len(piece) <= 20 for piece in wrapped("搜索" * 15, console))
