"""Makes the games of TextWorld in memory, each from a seed.

Invariants: a game is a function of its kind, level, objective and seed; the generators of the process, TextWorld's own
among them, are left as they were. Nothing is compiled and nothing is written: no Inform 7, no z-machine.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from agent_envs.adapters.textworld.config import Name, Objective
from agent_envs.core import SettingsError

_LOCK = threading.RLock()
"""TextWorld's generator of last resort is global: one game is made at a time."""
_KEPT = 512
"""Games that are kept: episodes of one task, forks and replays share theirs, as do a sampled and a greedy test of 500
tasks. Playing does not change a game."""
_ATTEMPTS = 20
"""Worlds that are tried for a seed: in some no quest of the wanted length is found."""


def textworld() -> ModuleType:
    """The package. Raises SettingsError where it is missing."""
    try:
        with _kept_random():
            import textworld as package
            import textworld.challenges
    except ImportError as error:
        raise SettingsError(f"textworld: {error}: pip install 'turnwise[textworld]'") from error
    return package


@lru_cache(_KEPT)
def generated(name: Name, level: int, objective: Objective, seed: int) -> Any:
    """The game (`textworld.Game`) of a seed; the same object for the same arguments while it is kept.

    Raises SettingsError where no game of this kind is found for the seed.
    """
    package = textworld()
    from textworld.generator import QuestGenerationError

    for attempt in range(_ATTEMPTS):
        with _LOCK, _own_random(package, [seed, attempt]) as rng:
            options = package.GameOptions()
            options.seeds = {key: int(rng.integers(2**32)) for key in ("map", "objects", "quest", "grammar")}
            options.grammar.only_last_action = objective == Objective.GOAL
            options.grammar.allowed_variables_numbering = True  # more rooms than names would fail
            options.kb = _knowledge(name)
            try:
                return {Name.COIN: _coin, Name.TREASURE: _treasure, Name.QUEST: _quest}[name](level, options)
            except QuestGenerationError:
                continue
    raise SettingsError(f"textworld: {name} of level {level}: no game was found for seed {seed}: choose another level")


@contextmanager
def _kept_random() -> Iterator[None]:
    """Leaves numpy's global generator as it was: importing TextWorld draws a seed from it."""
    state = np.random.get_state()
    try:
        yield
    finally:
        np.random.set_state(state)


@contextmanager
def _own_random(package: ModuleType, seed: list[int]) -> Iterator[np.random.Generator]:
    """A generator for a seed. TextWorld's own one, which it falls back on, follows it too and is put back."""
    rng, shared = np.random.default_rng(seed), package.g_rng
    before = dict(vars(shared))
    shared.set_seed(int(rng.integers(2**31)))
    try:
        yield rng
    finally:
        vars(shared).update(before)


@lru_cache(None)
def _knowledge(name: Name) -> Any:
    """The rules and texts of a kind of games: reading them takes longer than making a game with them."""
    from textworld.challenges.tw_coin_collector import coin_collector
    from textworld.challenges.tw_treasure_hunter import treasure_hunter
    from textworld.generator.data import KnowledgeBase

    paths = {Name.COIN: coin_collector.KB_PATH, Name.TREASURE: treasure_hunter.KB_PATH}
    return KnowledgeBase.load(paths[name]) if name in paths else KnowledgeBase.default()


def _treasure(level: int, options: Any) -> Any:
    from textworld.challenges.tw_treasure_hunter import treasure_hunter

    easy = level <= 10
    options.nb_rooms = 5 if easy else 10
    # The lengths of TextWorld's levels.
    lengths = np.round(np.linspace(1, 5, 10) if easy else np.linspace(2, 10, 10))
    options.quest_length = int(lengths[(level - 1) % 10])
    return treasure_hunter.make_game("easy" if easy else "medium", options)


def _quest(level: int, options: Any) -> Any:
    from textworld.generator import make_game

    options.nb_rooms = 2 + level // 2
    options.nb_objects = 3 + level
    options.quest_length = level
    return make_game(options)


def _coin(level: int, options: Any) -> Any:
    """The houses of tw-coin_collector, levels 101 to 200 there: a chain of rooms, each with a dead end.

    TextWorld's own maker compiles each game with Inform 7 to find the actions of the walkthrough, which takes a second.
    """
    import textworld as package
    from textworld.generator.game import Event, Quest

    rng, maker = options.rngs["map"], package.GameMaker(options)
    rooms = [maker.new_room()]
    ways = [_joined(maker, rooms, rooms[-1], rng) for _ in range(level - 1)]
    for place in range(level):
        _joined(maker, rooms, rooms[place], rng)
    maker.set_player(rooms[0])
    rooms[level - 1].add(maker.new(type="o", name="coin"))
    actions = _taken(maker.build(), [*(f"go {way}" for way in ways), "take coin"])
    maker.quests = [Quest(win_events=[Event(actions)])]
    return maker.build()


def _joined(maker: Any, rooms: list[Any], source: Any, rng: Any) -> str:
    """Builds a room next to another one, in a direction that is free there, which is returned."""
    from textworld.generator.graph_networks import reverse_direction

    way = str(rng.choice([way for way, leads in source.exits.items() if leads.dest is None]))
    rooms.append(maker.new_room())
    maker.connect(source.exits[way], rooms[-1].exits[reverse_direction(way)])
    return way


def _taken(game: Any, commands: list[str]) -> list[Any]:
    """The actions that commands stand for, played one after the other."""
    from textworld.generator.game import GameProgression

    played, names = GameProgression(game, track_quests=False), {key: one.name for key, one in game.infos.items()}
    taken = []
    for command in commands:
        taken.append(next(one for one in played.valid_actions if one.format_command(names) == command))
        played.update(taken[-1])
    return taken
