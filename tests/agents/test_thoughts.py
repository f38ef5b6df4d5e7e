"""Where a thought factor ends: between tokens, over any tokenizer, at one slot and at many."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from time import sleep

import pytest
from engine_cases import VOCABULARY, engine_of, model, one, some
from scripted_engine import FakeEngine
from thought_cases import CHATS, message

from agent_envs.actions import ends_thought
from agents.engine import Completion, Request, SamplingSettings, StopReason
from agents.text.chat import Chat
from agents.text.thoughts import ThoughtEnds

TEXTS = ["a", ".\n\n", "\n", "\n\n", " ", "\n\nSo", "x\n", "\n.", "b\n\nc", "<|end|>"]
A, DOT, LINE, BLANK, SPACE, SO, X, DOTTED, INSIDE, END = range(10)
ENDS = ThoughtEnds(TEXTS)


@pytest.mark.parametrize(
    ("tokens", "length"),
    [
        ([A, DOT, A], 2),
        ([DOT], 1),
        ([A, LINE, LINE, A], 3),
        ([A, BLANK], 2),
        ([X, LINE, A], 2),
        ([A, LINE, DOTTED], 3),  # it is complete with the first character of "\n."
        ([A, LINE, SPACE, LINE], None),
        ([INSIDE, A], 1),
        ([A, SO, A], 2),
        ([BLANK, A, BLANK], 3),  # an empty factor merges with the next one
        ([LINE, LINE, SPACE, BLANK, A], None),
        ([SO, A, LINE, LINE], 4),
        ([LINE, A, BLANK], 3),
        ([99, A, BLANK], 3),  # a token without a text
        ([A, 99, BLANK], 3),
    ],
)
def test_the_cut_comes_after_the_token_that_completes_a_blank_line(tokens: list[int], length: int | None) -> None:
    assert ENDS.length(tokens) == length


def test_one_that_looks_for_a_blank_line_in_single_tokens_only_would_miss_some() -> None:
    naive = next((i for i, t in enumerate([A, LINE, LINE, A], 1) if "\n\n" in TEXTS[t]), None)
    assert naive is None and ENDS.length([A, LINE, LINE, A]) == 3


def turns_of(chat: Chat, tokens: Sequence[int], ends: ThoughtEnds | None = None) -> list[tuple[int, ...]]:
    """The message cut into turns."""
    rest, turns = list(tokens), []
    while rest:
        length = (ends or chat.thought_ends).length(rest) or len(rest)
        turns.append(tuple(rest[:length]))
        rest = rest[length:]
    return turns


@pytest.mark.parametrize("chat", CHATS)
def test_whatever_is_said_is_cut_where_its_text_has_a_blank_line(chat: str) -> None:
    made = CHATS[chat]()
    cuts = 0
    for seed in range(300):
        text = message(Random(seed))
        tokens = made.encode(text)
        turns = turns_of(made, tokens)
        assert sum(turns, ()) == tokens, "nothing is lost, added or encoded again"
        for turn in turns[:-1]:
            said, before = made.decode(turn), made.decode(turn[:-1])
            assert ends_thought(said) and said.strip(), "it ends with a blank line, and is not empty"
            assert not ends_thought(before) or not before.strip(), "and it was not complete a token earlier"
        cuts += len(turns) - 1
        last = made.decode(turns[-1])
        assert not (ends_thought(last) and last.strip() and turns_of(made, turns[-1]) != [turns[-1]])
    assert cuts > 200
    naive = ThoughtEnds([text if text == "\n\n" else text.replace("\n", "") for text in texts(made)])
    encoded = [made.encode(message(Random(seed))) for seed in range(300)]
    differs = [turns_of(made, tokens) != turns_of(made, tokens, naive) for tokens in encoded]
    assert sum(differs) > 20, "the control: a token of its own for each blank line is not enough"


def texts(chat: Chat) -> list[str]:
    return [chat.decode([i]) for i in range(len(chat.tokenizer))]


# -- on the engine ----------------------------------------------------------------------------------------------------

OTHERS = ThoughtEnds(["x" if i % 5 else "\n" if i % 2 else ".\n\n" for i in range(VOCABULARY)])


def requests(cut: ThoughtEnds | None, turns: int = 3) -> list[list[Request]]:
    rng = Random(4)
    return [
        [Request(i, some(rng, 3, 20) if t == 0 else (), 12, seed=100 * i + t, cut=cut) for t in range(turns)]
        for i in range(9)
    ]


def play(slots: int, cut: ThoughtEnds | None, turns: int = 3) -> dict[int, list[Completion]]:
    """Several turns of nine messages, the later ones without anything in between."""
    engine = engine_of(model(), slots, sampling=SamplingSettings(temperature=3.0))
    todo, found = requests(cut, turns), {i: [] for i in range(9)}
    waiting, at = list(range(9)), dict.fromkeys(range(9), 0)
    active: set[int] = set()
    while waiting or active:
        while waiting and len(active) < slots:
            active.add(waiting[0])
            engine.submit(todo[waiting.pop(0)][0])
        for done in engine.step():
            found[done.session].append(done)
            at[done.session] += 1
            if at[done.session] == turns:
                engine.close_session(done.session)
                active.remove(done.session)
            else:
                engine.submit(todo[done.session][at[done.session]])
    return found


def test_the_engine_cuts_the_same_tokens_at_one_slot_and_at_many() -> None:
    alone, together, uncut = play(1, OTHERS), play(9, OTHERS), play(9, None, 1)
    assert {i: [d.tokens for d in ds] for i, ds in alone.items()} == {
        i: [d.tokens for d in ds] for i, ds in together.items()
    }
    stops = [d.stop for ds in together.values() for d in ds]
    assert stops.count(StopReason.CUT) > 10
    for i, (first, *_) in together.items():
        whole = uncut[i][0]
        length = OTHERS.length(whole.tokens)
        assert first.tokens == whole.tokens[: length or len(whole.tokens)], "what is sampled is what was sampled uncut"
        assert first.stop is (StopReason.CUT if length else whole.stop)
    shorter = [len(together[i][0].tokens) < len(uncut[i][0].tokens) for i in together]
    assert any(shorter), "the control: uncut they go on"


def test_an_end_token_wins_and_a_turn_in_two_parts_is_cut_where_it_would_be_in_one() -> None:
    engine = engine_of(model(), 4, sampling=SamplingSettings(temperature=3.0))
    halves = 0
    for seed in range(40):
        ask = Request(0, (5, 6, 7), 12, seed=seed, cut=OTHERS)
        whole = one(engine, ask)
        engine.close_session(0)
        first = one(engine, Request(0, (5, 6, 7), 1, seed=seed, cut=OTHERS))
        if first.stop is StopReason.LENGTH:
            rest = one(engine, Request(0, (), 11, seed=seed, skip=1, cut=OTHERS))
            assert first.tokens + rest.tokens == whole.tokens and rest.stop is whole.stop
            halves += whole.stop is StopReason.CUT and whole.tokens[0] % 10 == 5
        engine.close_session(0)
    assert halves, "the control: a line break in the first part, and the blank line complete in the second"


def test_an_engine_that_was_given_one_table_refuses_another() -> None:
    for engine in (engine_of(model(), 2), FakeEngine(lambda request, history: [A, DOT], slots=2)):
        engine.submit(Request(0, (5,), 2, seed=0, cut=ENDS))
        with pytest.raises(ValueError, match="another tokenizer"):
            engine.submit(Request(1, (5,), 2, seed=0, cut=ThoughtEnds(TEXTS)))


def test_the_scripted_engine_cuts_too() -> None:
    said = [A, LINE, LINE, A, DOT, A, END]
    engine = FakeEngine(lambda request, history: said, [END])
    assert one_of(engine, Request(0, (5,), 9, seed=0, cut=ENDS)) == ((A, LINE, LINE), StopReason.CUT)
    engine.close_session(0)
    assert one_of(engine, Request(0, (5,), 2, seed=0, cut=ENDS)) == ((A, LINE), StopReason.LENGTH)
    assert one_of(engine, Request(0, (), 9, seed=0, skip=2, cut=ENDS)) == ((LINE,), StopReason.CUT)
    engine.close_session(0)
    assert one_of(engine, Request(0, (5,), 9, seed=0)) == (tuple(said), StopReason.END)


def one_of(engine: FakeEngine, request: Request) -> tuple[tuple[int, ...], StopReason]:
    engine.submit(request)
    (done,) = engine.step()
    return done.tokens, done.stop


def test_threads_that_ask_at_once_get_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine refuses a second one. Before Python 3.12 a cached property alone was enough."""
    made = []

    def slow(texts: Sequence[str]) -> ThoughtEnds:
        made.append(sleep(0.05))
        return ThoughtEnds(texts)

    monkeypatch.setattr("agents.text.chat.ThoughtEnds", slow)
    chat = Chat(CHATS["tiny"]().tokenizer)
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda _: chat.thought_ends, range(4)))
    assert len(made) == 1 and all(table is tables[0] for table in tables)
