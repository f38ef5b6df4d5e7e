"""``turnwise evaluate --endpoint URL --model NAME``: measures a served model as an evaluation here measures a run."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from agent_envs import registry
from agent_envs.core import Task, TextEnv
from agents.endpoint.client import EndpointError
from agents.endpoint.served import ServedModel
from agents.tree.episode import Served
from runners.command_line.blame import blamed
from runners.command_line.errors import UserError
from runners.command_line.outputs import writing
from runners.command_line.plain import dump_json
from runners.evaluation import report
from runners.evaluation import thought_kinds as kinds
from runners.evaluation.measure import PlayedTasks
from runners.evaluation.tasks import pick_tasks
from runners.reporting.progress import evaluating
from runners.run_folder.folder import write_whole
from runners.served.kept import RESULT, Kept
from runners.served.play import Play
from runners.served.settings import EvaluateServed, folder_of, measured


def run(evaluate: EvaluateServed, parts: dict[str, Any]) -> None:
    """The whole program. Raises UserError."""
    check(evaluate, parts)
    console = Console()
    envs = {name: registry.make(name, parts[name]) for name in evaluate.envs}
    tasks = {name: pick_tasks(env, evaluate.split, evaluate.tasks, console) for name, env in envs.items()}
    check_tools(envs, parts)
    try:
        model = ServedModel(evaluate.endpoint, evaluate.model, parts["served"])
    except EndpointError as error:
        raise UserError(str(error)) from None
    folder = folder_of(evaluate, parts)
    kept = Kept(folder, {name: measured(evaluate, parts, name) for name in envs})
    try:
        result = measure(evaluate, parts, envs, tasks, model, kept, console)
    finally:
        model.close()
        kept.close()
    place = folder / RESULT
    with writing(place):
        write_whole(place, dump_json({"settings": {"evaluate": evaluate, **parts}, "envs": result}))
    console.print(f"result: {place}", soft_wrap=True, highlight=False, markup=False)


def check(evaluate: EvaluateServed, parts: Mapping[str, Any]) -> None:
    """Raises UserError for what is missing or has no effect."""
    if not evaluate.endpoint:
        raise UserError("--engine openai needs the address of a server: --endpoint http://HOST:PORT/v1")
    if not evaluate.model:
        raise UserError("--endpoint needs the name of a model there: --model NAME")
    if parts["react"].oracle:
        raise UserError("--react.oracle has no effect on a served model: it has no critic to be measured with it")


def check_tools(envs: Mapping[str, TextEnv], parts: Mapping[str, Any]) -> None:
    """Raises UserError where settings of the conversation do not go with the environments."""
    how = parts["served"]
    for name, env in envs.items():
        if how.tools and not env.grammar.verbs:
            raise UserError(f"--served.tools does not work with {name}, whose turns are no actions")
    if how.prefill and not any(env.openings for env in envs.values()):
        raise UserError("--served.prefill has no effect: none of the environments begins the model's message")


def measure(
    evaluate: EvaluateServed,
    parts: dict[str, Any],
    envs: Mapping[str, TextEnv],
    tasks: Mapping[str, Sequence[Task]],
    model: ServedModel,
    kept: Kept,
    console: Console,
) -> dict[str, Any]:
    """Plays and shows every environment; {environment: figures}. Raises UserError, which says what is kept."""
    total = sum(map(len, tasks.values())) * (evaluate.samples + 1)
    there = sum(kept.holds(name, tasks[name], evaluate.samples) for name in envs)
    console.print(
        f"model: {evaluate.model} at {evaluate.endpoint}; {total} episodes, {there} of them from {kept.folder}",
        soft_wrap=True, highlight=False, markup=False,
    )  # fmt: skip
    result: dict[str, Any] = {}
    try:
        if there < total:
            model.check()
        for name, env in envs.items():
            with blamed(name, "to prepare"):
                env.prepare()
            with evaluating(console, total, there) as advance:
                played = Play(evaluate, parts, name, model, kept, advance).play(tasks[name])
            there = sum(kept.holds(other, tasks[other], evaluate.samples) for other in envs)
            result[name] = shown(name, env, played, parts, console)
    except (UserError, EndpointError) as error:
        there = sum(kept.holds(name, tasks[name], evaluate.samples) for name in envs)
        raise UserError(f"{error}; {there} of {total} episodes are kept in {kept.folder}: {_AGAIN}") from None
    except KeyboardInterrupt:
        there = sum(kept.holds(name, tasks[name], evaluate.samples) for name in envs)
        console.print(f"{there} of {total} episodes are kept in {kept.folder}: {_AGAIN}", soft_wrap=True, markup=False)
        raise
    bill = model.bill
    console.print(
        f"requests of this command: {bill.calls}, of which {bill.retries} repeat one that failed", highlight=False
    )
    return result


_AGAIN = "the same command goes on with the others"


def shown(
    name: str, env: TextEnv, played: Mapping[str, PlayedTasks], parts: Mapping[str, Any], console: Console
) -> dict[str, Any]:
    """Figures of an environment, after they were shown."""
    figures = report.figures_of({"model": played})
    for mode, result in played.items():
        figures["model"][mode]["endpoint"] = bill_of(result, parts["served"])
    console.print(f"\n{name}", style="bold", highlight=False)
    report.show(figures, console)
    for mode, result in played.items():
        for line in said(mode, result, figures["model"][mode]["endpoint"]):
            console.print(line, highlight=False, soft_wrap=True, markup=False)
    if (kind := env.turn_kind()) is not None:
        figures["kinds"] = kinds.by_kind([e for e in played["sampled"].episodes if e.turns], None, kind)
        kinds.show(figures["kinds"], console)
    return figures


def bill_of(result: PlayedTasks, how: Any) -> dict[str, float]:
    """What the kept episodes took, all together; retries and episodes that were not finished are not in it."""
    served = [e for e in result.episodes if isinstance(e, Served)]
    prompt, completion = (sum(getattr(e, name) for e in served) for name in ("prompt_tokens", "completion_tokens"))
    return {
        "requests": sum(e.requests for e in served),
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "cost": (prompt * how.price_prompt + completion * how.price_completion) / 1e6,
        "inspected": sum(e.ended == "inspected" for e in served),
        "context": sum(e.ended == "context" for e in served),
    }


def said(mode: str, result: PlayedTasks, bill: Mapping[str, float]) -> list[str]:
    """Lines below the table."""
    priced = f", cost {bill['cost']:.4f}" if bill["cost"] else ""
    lines = [
        f"{mode}: {bill['requests']:,} requests, {bill['prompt_tokens']:,} prompt tokens, "
        f"{bill['completion_tokens']:,} completion tokens{priced}"
    ]
    reasons = {"inspected": "by the endpoint's content inspection", "context": "by the length of the model's context"}
    lines += [f"{mode}: {bill[key]} episodes were ended {why} and count as failed"
              for key, why in reasons.items() if bill[key]]  # fmt: skip
    if not bill["prompt_tokens"]:
        lines.append(f"{mode}: the server counts no tokens, so --react.max-tokens ended no episode")
    if faults := len(result.outcomes) - len(result.episodes):
        lines.append(f"{mode}: {faults} episodes broke and are left out; the same command tries them again")
    return lines
