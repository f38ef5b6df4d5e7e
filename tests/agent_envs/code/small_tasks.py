"""Small coding tasks written by hand, and the environment over them."""

from agent_envs.actions import render
from agent_envs.code.config import CodeConfig
from agent_envs.code.env import CodeEnv
from agent_envs.code.prompt import prompt_of
from agent_envs.code.task import Case, CodeTask
from agent_envs.core import Task, TaskSet, number_after

TOTAL = "def total(items):\n    found = 0\n    for item in items:\n        found += item\n    return found\n"
AREA = "from shape import side\n\n\ndef area(text):\n    return side(text) ** 2\n"
SHAPE = "def side(text):\n    return int(text)\n"


def cases(module: str, **expected: object) -> tuple[Case, ...]:
    """Cases of one module; the expressions are the keys, which keyword arguments allow to be any text."""
    return tuple(Case(module, expression, value) for expression, value in expected.items())


def repair(word: str) -> CodeTask:
    """A file with one bug, in which a name is ``word``."""
    right = TOTAL.replace("item", word)
    return CodeTask(
        statement="total adds up all numbers.",
        files={"main.py": right.replace("+=", "-=")},
        visible=cases("main", **{"total([])": 0, "total([1, 2])": 3}),
        hidden=cases("main", **{"total([5])": 5, "total([])": 0, "total([-1, 2])": 1, "total((0, 0))": 0}),
        solution={"main.py": right},
    )


def several(word: str) -> CodeTask:
    """Two files that work together, each with a bug."""
    area, shape = AREA.replace("text", word), SHAPE.replace("text", word)
    return CodeTask(
        statement="area squares a number that is written as text.",
        files={"main.py": area.replace("** 2", "* 2"), "shape.py": shape.replace("int(", "len(")},
        visible=cases("main", **{"area('3')": 9}),
        hidden=(*cases("main", **{"area('4')": 16, "area('10')": 100}), *cases("shape", **{"side('12')": 12})),
        solution={"main.py": area, "shape.py": shape},
    )


def synthesis(word: str) -> CodeTask:
    """A function that is still to be written."""
    right = f"def twice({word}):\n    found = {word} * 2\n    return found\n"
    return CodeTask(
        statement="twice gives the double.",
        files={"main.py": f"def twice({word}):\n    pass\n"},
        visible=cases("main", **{"twice(2)": 4}),
        hidden=cases("main", **{"twice(3)": 6, "twice('a')": "aa"}),
        solution={"main.py": right},
    )


WORDS = {"train": ("item", "value", "number"), "valid": ("thing",), "test": ("part", "piece")}


class SmallEnv(CodeEnv):
    """The coding environment over the tasks above."""

    def tasks(self, split: str) -> TaskSet:
        kinds = (repair, several, synthesis)

        def build(index: int) -> Task:
            language = ("en", "zh")[index % 2]
            task = kinds[index % 3](WORDS[split][index // 3])
            return Task(f"small-{split}-{index}", split, prompt_of(task, language), language, data=task)

        size = 3 * len(WORDS[split])
        return TaskSet(size, build, lambda task_id: number_after(f"small-{split}-", task_id))


def small(**settings: object) -> SmallEnv:
    """The environment with these settings, in namespaces."""
    return SmallEnv(CodeConfig(**{"sandbox": "namespace", **settings}))  # type: ignore[arg-type]


REPAIR = "small-train-0"
"""A file with a bug, in English."""


def started(task: str | Task = REPAIR, **settings: object) -> SmallEnv:
    env = small(**settings)
    env.reset(options={"task": task})
    return env


def do(env: SmallEnv, name: str, args: str = "", body: str | None = None) -> str:
    return env.step(render(name, args, "", body))[0]
