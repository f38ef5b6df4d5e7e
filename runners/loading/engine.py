"""Engines of training runs, in other programs: those play in their own process, exactly."""

from rich.console import Console

from agents.engine.registry import EngineChoice


def in_this_process(choice: EngineChoice, console: Console) -> EngineChoice:
    """The engine that plays here: the default one, said in a line, where ``choice`` plays elsewhere only."""
    if not (choice.own_process or choice.training_only):
        return choice
    here = EngineChoice()
    where = "runs in rollout workers only" if choice.own_process else "plays in training only"
    console.print(f"engine: {here.name} plays here; {choice.name} {where}", highlight=False)
    return here
