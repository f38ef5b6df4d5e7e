"""What an agent of TextWorld-Express sees, and how a room is read from the game's text."""

import re

from agent_envs.adapters.textworld_express.config import GameView
from agent_envs.adapters.textworld_express.game import Played, Reply

DIRECTIONS = ("north", "south", "east", "west")
_ROOM = re.compile(r"You are in the ([^.]+)\.")
_EXIT = re.compile(rf"to the ({'|'.join(DIRECTIONS)}) you see (a closed )?([^.]+)\.", re.IGNORECASE)
_IDLE = ("close ", "examine ", "inventory", "look around", "task")
"""Actions that change nothing that matters."""


def room_of(look: str) -> str:
    """The room that a text is of; nothing where there is none."""
    found = _ROOM.match(look)
    return found[1] if found else ""


def exits_of(look: str) -> dict[str, str]:
    """Direction → the room there, or nothing where a closed door hides it."""
    return {way.lower(): "" if closed else there for way, closed, there in _EXIT.findall(look)}


def useful(reply: Reply) -> list[str]:
    """The possible actions but those that lead nowhere: no look or closing, no step against a closed door."""
    exits = exits_of(reply.look)
    futile = {f"{'open door to' if there else 'move'} {way}" for way, there in exits.items()}
    return [action for action in reply.valid if action not in futile and not action.startswith(_IDLE)]


def shown(played: Played, view: GameView) -> str:
    """What the agent sees now; the task is part of what it sees first."""
    task = [] if played.steps else [played.task]
    return "\n".join(line for line in [*task, *_lines(played.reply, view)] if line)


def _lines(reply: Reply, view: GameView) -> list[str]:
    text = reply.text.strip()
    if view == GameView.GAME:
        return [text]
    if view == GameView.FULL:
        return [text, reply.inventory.strip(), f"Possible: {', '.join(reply.valid)}"]
    if not reply.look:
        return [text]
    said = "" if text == reply.look.strip() else " ".join(text.split())
    ways = {f"move {way}": there for way, there in exits_of(reply.look).items()}
    actions = [f"{action}: {ways[action]}" if ways.get(action) else action for action in useful(reply)]
    return [said, room_of(reply.look), *actions]
