"""What an agent of BabyAI sees, as text: its errand, the way ahead, and everything in sight from where it stands."""

from typing import Any

WALL = "wall"


def label(thing: Any) -> str:
    """What a thing is called: ``red ball``, ``blue door, locked``."""
    name = f"{thing.color} {thing.type}"
    if thing.type != "door":
        return name
    return f"{name}, {'open' if thing.is_open else 'locked' if thing.is_locked else 'closed'}"


def place(ahead: int, right: int) -> str:
    """Where a thing is: ``2 ahead 1 left``."""
    side = f"{abs(right)} {'right' if right > 0 else 'left'}" if right else ""
    return " ".join(part for part in (f"{ahead} ahead" if ahead else "", side) if part)


def in_sight(grid: Any, seen: Any) -> list[tuple[int, int, Any]]:
    """(cells ahead, cells to the right, thing) of everything but walls that is seen, the nearest first.

    ``grid`` and ``seen`` are what the environment's ``gen_obs_grid`` returns.
    """
    found = [
        (grid.height - 1 - row, column - grid.width // 2, grid.get(column, row))
        for column in range(grid.width)
        for row in range(grid.height)
        if seen[column, row]
    ]
    things = [one for one in found if one[2] is not None and one[2].type != WALL and one[:2] != (0, 0)]
    return sorted(things, key=lambda one: (one[0] + abs(one[1]), one[1]))


def way(grid: Any, seen: Any) -> str:
    """How far it can go, and what is there."""
    free = 0
    for row in range(grid.height - 2, -1, -1):
        thing = grid.get(grid.width // 2, row)
        if not seen[grid.width // 2, row]:
            return f"{free} free"
        if thing is not None and not thing.can_overlap():
            return f"{free} free, then {label(thing) if thing.type != WALL else WALL}"
        free += 1
    return f"{free} free"


def view(env: Any) -> str:
    """The whole observation, one thing a line."""
    looks = env.gen_obs_grid()
    lines = [f"errand: {env.mission}", f"ahead: {way(*looks)}"]
    lines += [f"{label(thing)}: {place(ahead, right)}" for ahead, right, thing in in_sight(*looks)]
    if env.carrying is not None:
        lines.append(f"in hand: {label(env.carrying)}")
    return "\n".join(lines)


def wanted(env: Any) -> str:
    """The line of the nearest thing in sight that the errand speaks of; nothing where none is seen."""
    words = set(env.mission.replace(",", " ").split())
    things = in_sight(*env.gen_obs_grid())
    colours = {thing.color for _, _, thing in things} & words
    for ahead, right, thing in things:
        if thing.type in words and (not colours or thing.color in words):
            return f"{label(thing)}: {place(ahead, right)}"
    return ""
