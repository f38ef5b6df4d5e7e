"""The rooms of a house, found by walking through all of them in a game of its own."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field

from agent_envs.adapters.textworld_express.game import TextGame
from agent_envs.adapters.textworld_express.view import DIRECTIONS, exits_of, room_of

OPPOSITE = dict(zip(DIRECTIONS, ("south", "north", "west", "east"), strict=True))


@dataclass
class Room:
    """A room as it is when it is entered for the first time."""

    look: str
    valid: tuple[str, ...]
    exits: dict[str, str] = field(default_factory=dict)
    """Direction → the room there."""


@dataclass
class House:
    """All rooms."""

    start: str
    rooms: dict[str, Room]
    doors: set[frozenset[str]]
    """Pairs of rooms with a closed door between them."""

    def nearest(self, start: str, wanted: Collection[str]) -> list[str]:
        """The directions to the nearest of some rooms. Raises LookupError where none can be reached."""
        ways: dict[str, list[str]] = {start: []}
        queue = deque([start])
        while queue:
            here = queue.popleft()
            if here in wanted:
                return ways[here]
            for way, there in self.rooms[here].exits.items():
                if there not in ways:
                    ways[there] = [*ways[here], way]
                    queue.append(there)
        raise LookupError(f"no way from {start} to {sorted(wanted)}")


def survey(game: TextGame, seed: int) -> House:
    """The house of a seed; the game is left at its beginning, with the doors open. Raises BackendUnavailable."""
    game.reset(seed=seed)
    house = House(room_of(game.played.reply.look), {}, set())
    _explore(game, house)
    return house


def _explore(game: TextGame, house: House) -> None:
    """Adds the room where the game stands, and those after it that are not known yet; comes back there."""
    reply = game.played.reply
    name = room_of(reply.look)
    room = house.rooms[name] = Room(reply.look, reply.valid)
    exits = exits_of(reply.look)
    for way in DIRECTIONS:
        if way not in exits:
            continue
        if not exits[way]:
            game.step(f"open door to {way}")
        game.step(f"move {way}")
        there = room_of(game.played.reply.look)
        room.exits[way] = there
        if not exits[way]:
            house.doors.add(frozenset((name, there)))
        if there not in house.rooms:
            _explore(game, house)
        game.step(f"move {OPPOSITE[way]}")
