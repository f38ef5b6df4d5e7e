"""A search whose actions are thoughts: they are cut where an episode's are, and one for every state is the episode."""

from test_thought_turns import ENV, model, path

from agent_envs.math.env import MathEnv
from agents.engine import SamplingSettings
from agents.engine.hf import HFEngine
from agents.rollout.play import rollout
from agents.rollout.search.scorers import scorer_of
from agents.rollout.search.settings import Rank, ScorerKind, Scoring, SearchPlan, ToTSettings
from agents.rollout.settings import ReActSettings
from agents.tree import Kind
from agents.tree.episode import Episode, Job, Searched

SETTINGS = ReActSettings(max_action_tokens=20, max_tokens=700)


def played(how: ToTSettings | None) -> list[Episode]:
    base, chat = model()
    engine = HFEngine(base, chat.stop_ids, max_length=700, slots=12, sampling=SamplingSettings(temperature=1.5))
    scoring = Scoring(ScorerKind.LOGPROB)
    return rollout(
        lambda: MathEnv(ENV.config),
        engine,
        chat,
        [Job(ENV.tasks("train")[i]) for i in range(3)],
        SETTINGS,
        search=how and SearchPlan(how, scoring),
        scorer=scorer_of(scoring, None),
    ).episodes


def test_one_thought_for_every_state_is_the_episode() -> None:
    plain, searched = played(None), played(ToTSettings(branch=1))
    assert [path(e) for e in plain] == [path(e) for e in searched]
    assert [e.texts for e in plain] == [e.texts for e in searched] and any(len(e.turns) > 2 for e in plain)
    more = played(ToTSettings(branch=2, beam=1))
    assert [path(e) for e in plain] != [path(e) for e in more], "the control: a choice makes another"


def test_thoughts_are_cut_in_a_search_too() -> None:
    _, chat = model()
    found = played(ToTSettings(branch=3, beam=2, rank=Rank.SCORE))
    cut = 0
    for episode in found:
        assert isinstance(episode, Searched)
        for state in (n for n in episode.root.walk() if n.kind is Kind.STATE and n is not episode.root):
            assert not state.tokens
        for action, state in episode.own_turns:
            if state.children:
                cut += 1
                whole = chat.thought_ends.length(action.tokens)
                assert whole == len(action.tokens) or (whole is None and len(action.tokens) == 20)
    assert cut > 5
