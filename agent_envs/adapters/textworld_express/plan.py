"""Solutions of a game from its beginning.

Invariant: a plan depends on the game and the seed only. Six games ship such a one. The other two, `coin` and `twc`,
ship a walk at random, another one each time: of it only the things that are put away are used. Where each belongs and
the way are found here.
"""

import re
from collections.abc import Mapping, Sequence

from agent_envs.adapters.textworld_express.config import Name
from agent_envs.adapters.textworld_express.game import TextGame
from agent_envs.adapters.textworld_express.survey import OPPOSITE, House, Room, survey
from agent_envs.adapters.textworld_express.view import room_of

_NEEDLESS = ("close ", "look around", "task")
_PUT = re.compile(r"put (.+) in .+")
_CAPACITY = re.compile(r"maximum capacity is (\d+) items")


def plan_of(game: TextGame, seed: int) -> tuple[str, ...]:
    """Actions that win the game of a seed. The game is used up. Raises BackendUnavailable."""
    if game.game == Name.COIN:
        house = survey(game, seed)
        walker = Walker(house)
        walker.go([name for name, room in house.rooms.items() if "take coin" in room.valid])
        return (*walker.actions, "take coin")
    gold = game.gold(seed)
    if game.game != Name.TWC:
        return straight([action for action in gold if not action.startswith(_NEEDLESS)])
    things = {found[1] for action in gold if (found := _PUT.fullmatch(action))}
    house, capacity = survey(game, seed), _capacity(game.played.reply.inventory)
    return tidied(house, {thing: home(game, house, thing) for thing in sorted(things)}, capacity)


def home(game: TextGame, house: House, thing: str) -> str:
    """The place nearest to a thing for which the game pays; the thing is left there. Raises BackendUnavailable.

    All doors are open, and the thing lies where it did at the beginning. Some things have several places.
    """

    def go(name: str) -> None:
        for way in house.nearest(room_of(game.played.reply.look), [name]):
            game.step(f"move {way}")

    take = f"take {thing}"
    start = next(name for name, room in house.rooms.items() if take in room.valid)
    go(start)
    game.step(take)
    for name in sorted(house.rooms, key=lambda name: (len(house.nearest(start, [name])), name)):
        go(name)
        for action in game.played.reply.valid:
            if action.startswith("open "):
                game.step(action)
        for put in [action for action in game.played.reply.valid if action.startswith(f"put {thing} in ")]:
            _, paid, *_ = game.step(put)
            if paid > 0:
                return put.removeprefix(f"put {thing} in ")
            game.step(take)
    raise LookupError(f"no place for {thing} in the house of seed {game.played.seed}")


def straight(actions: Sequence[str]) -> tuple[str, ...]:
    """The actions without the steps that the next one takes back."""
    kept: list[str] = []
    for action in actions:
        if kept and action.startswith("move ") and kept[-1] == f"move {OPPOSITE[action.removeprefix('move ')]}":
            kept.pop()
        else:
            kept.append(action)
    return tuple(kept)


def _capacity(inventory: str) -> int:
    found = _CAPACITY.search(inventory)
    return int(found[1]) if found else 10**9


class Walker:
    """Walks through a house and writes down what it does."""

    def __init__(self, house: House) -> None:
        self.house, self.room = house, house.start
        self.actions: list[str] = []
        self._open: set[frozenset[str]] = set()
        self._opened: set[tuple[str, str]] = set()

    def go(self, wanted: Sequence[str]) -> None:
        """Goes to the nearest of some rooms."""
        for way in self.house.nearest(self.room, wanted):
            there = self.house.rooms[self.room].exits[way]
            door = frozenset((self.room, there))
            if door in self.house.doors - self._open:
                self.actions.append(f"open door to {way}")
                self._open.add(door)
            self.actions.append(f"move {way}")
            self.room = there

    def put(self, thing: str, place: str) -> None:
        """Puts a thing in a place of the room, which is opened where it has to be."""
        if f"open {place}" in self.house.rooms[self.room].valid and (self.room, place) not in self._opened:
            self.actions.append(f"open {place}")
            self._opened.add((self.room, place))
        self.actions.append(f"put {thing} in {place}")


def tidied(house: House, homes: Mapping[str, str], capacity: int) -> tuple[str, ...]:
    """The actions that put each thing in the place that is its home."""
    walker = Walker(house)
    lying, held = sorted(homes), list[str]()
    while lying or held:
        wanted = lying if len(held) < capacity else []
        walker.go([name for name, room in house.rooms.items() if _useful(room, homes, held, wanted)])
        room = house.rooms[walker.room]
        for one in [one for one in held if _holds(room.look, homes[one])]:
            walker.put(one, homes[one])
            held.remove(one)
        for one in [one for one in lying if _lies(room.valid, one)][: capacity - len(held)]:
            walker.actions.append(f"take {one}")
            lying.remove(one)
            held.append(one)
    return tuple(walker.actions)


def _useful(room: Room, homes: Mapping[str, str], held: Sequence[str], lying: Sequence[str]) -> bool:
    """Whether something that is held belongs into a room, or something that is wanted lies there."""
    return any(_holds(room.look, homes[one]) for one in held) or any(_lies(room.valid, one) for one in lying)


def _lies(valid: Sequence[str], thing: str) -> bool:
    return f"take {thing}" in valid


def _holds(look: str, place: str) -> bool:
    """Whether a place is in a room; a side table is no table."""
    return re.search(rf"\ban? {re.escape(place)}\b", look) is not None
