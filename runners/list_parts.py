"""Lists everything that can be named on a command line, with a line each; broken plug-ins with their reason."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    import runners

    runners.run("list_parts")

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agent_envs import registry
from agent_envs.plugins import Listed
from agents.engine.registry import ENGINES
from agents.judge.base import JUDGES
from agents.rollout.registry import AGENTS
from algorithms import REGISTRY as ALGORITHMS
from runners.command_line.parse import parse
from runners.command_line.plain import dump_json
from runners.workers.registry import WORKERS


@dataclass(frozen=True)
class List:
    """List everything that can be named on a command line."""

    json: bool = False
    """Print JSON."""


def sections() -> Iterator[tuple[str, str, list[Listed]]]:
    """(title, flag, parts) of each kind."""
    for title, flag, parts in (
        ("Environments", "--env", registry.REGISTRY),
        ("Agents", "--agent", AGENTS),
        ("Algorithms", "--algo", ALGORITHMS),
        ("Engines", "--engine", ENGINES),
        ("Judges", "--judge.kind", JUDGES),
        ("Workers", "--workers NAME:N", WORKERS),
    ):
        yield title, flag, list(parts.listing())


def show(console: Console) -> None:
    result = list(sections())
    width = 2 + max(len(part.name) for _, _, parts in result for part in parts)
    for title, flag, parts in result:
        console.print(f"[bold]{title}[/] ({flag})")
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, width=width)
        table.add_column(overflow="fold")
        for part in parts:
            origin = f" ({part.origin})" if part.origin else ""
            missing = f" ({part.missing})" if part.missing else ""
            text = escape(part.description + origin + missing)
            if part.error:
                text = f"[red]cannot be used:[/] {escape(part.error)}"
            table.add_row(f"  {escape(part.name)}", text)
        console.print(table)


def main() -> None:
    settings, _ = parse(List)
    if settings.json:
        print(dump_json({title.lower(): [asdict(p) for p in parts] for title, _, parts in sections()}), end="")
    else:
        show(Console())
