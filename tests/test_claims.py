"""The claims of the Self-AC slides, on whole episodes that an agent really played."""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch
from rich.console import Console
from torch import nn

from agent_envs.identity.env import IdentityEnv
from agents.compiled.threads import allowing
from agents.engine import SamplingSettings
from agents.engine.hf import HFEngine
from agents.model.actor_critic import ActorCritic
from agents.model.settings import CriticSettings
from agents.rollout.play import rollout
from agents.rollout.settings import ReActSettings
from agents.text.chat import Chat
from agents.text.settings import CRITIC_TEXT
from agents.tiny.model import TinySettings, build_model
from agents.tiny.tokenizer import build_tokenizer
from agents.tree import Batch
from agents.tree.episode import Episode, Job
from agents.tree.merge import grow
from agents.tree.packing import pack
from algorithms.selfac import SelfAC
from runners.settings.run_settings import read_settings
from runners.training.run import Training

REACT = ReActSettings(max_action_tokens=6, max_tokens=200)
ENV = IdentityEnv()

Begin = Callable[..., tuple[Training, str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights and a tokenizer, as --model PATH takes it."""
    place = tmp_path_factory.mktemp("model")
    words = ENV.config.words
    tokenizer = build_tokenizer([f"word: {w} <action>SAY({w})</action>" for w in words], [*words, CRITIC_TEXT])
    build_model(tokenizer, TinySettings(width=32, mlp=48), seed=0).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


@pytest.fixture
def training(folder: Path, tmp_path: Path) -> Iterator[Begin]:
    """Begins runs, with adapters and a value head that are not zero any more, and gives what each printed, too."""
    with ExitStack() as opened:

        def begin(algo: str = "selfac", seed: int = 1) -> tuple[Training, str]:
            argv = [
                "--env",
                "identity",
                "--algo",
                algo,
                "--model",
                str(folder),
                "--episodes",
                "8",
                "--minibatches",
                "1",
            ]
            settings = read_settings([*argv, "--react.max-action-tokens", "6"])
            said = io.StringIO()
            run = opened.enter_context(Training(settings, Path(mkdtemp(dir=tmp_path)), Console(file=said, width=200)))
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                for parameter in [*run.model.policy_parameters(), *run.model.value_parameters()]:
                    nn.init.normal_(parameter, std=0.2)
            return run, said.getvalue()

        yield begin


def play(model: ActorCritic, chat: Chat, n: int = 6, *, greedy: bool = False) -> tuple[list[Episode], HFEngine]:
    engine = HFEngine(model.model, chat.stop_ids, max_length=REACT.max_tokens, slots=3)
    engine.load(1, model.policy_state())
    engine.sampling = SamplingSettings(greedy=greedy)
    return rollout(IdentityEnv, engine, chat, [Job(ENV.tasks("train")[i]) for i in range(n)], REACT).episodes, engine


def record(episodes: list[Episode]) -> list[object]:
    return [(a.tokens, a.logp, a.entropy, s.tokens) for e in episodes for a, s in e.turns]


def path(episode: Episode) -> tuple[int, ...]:
    return episode.root.tokens + tuple(t for pair in episode.turns for node in pair for t in node.tokens)


def contains(tokens: tuple[int, ...], part: tuple[int, ...]) -> bool:
    return any(tokens[i : i + len(part)] == part for i in range(len(tokens)))


def test_a_run_prints_what_it_adds(training: Begin) -> None:
    run, said = training()
    trained = (
        r"trained: ([\d,]+) LoRA(?: \(auto: [\w, ]+\))? \+ ([\d,]+) value head = ([\d.]+) % of ([\d,]+) parameters"
    )
    found = re.search(trained, said)
    assert found, said
    lora, head, size = (int(found[i].replace(",", "")) for i in (1, 2, 4))
    state = run.model.adapter_state()
    assert lora == sum(t.numel() for t in run.model.policy_state().values())
    assert lora + head == sum(t.numel() for t in state.values())
    names = [name for name, p in run.model.causal_model.named_parameters() if "lora_" not in name]
    assert size == sum(run.model.causal_model.get_parameter(name).numel() for name in names)
    assert float(found[3]) == pytest.approx(100 * (lora + head) / size, abs=0.05)
    _, other = training("grpo")
    assert re.search(rf"{lora:,} LoRA(?: \(.*\))? \+ 0 value head", other)  # the only thing the critic adds is its head


@pytest.mark.runs
@pytest.mark.parametrize("greedy", [True, False])
def test_without_its_value_head_the_agent_plays_the_same_bits(training: Begin, tmp_path: Path, greedy: bool) -> None:
    run, _ = training()
    with_head = record(play(run.model, run.chat, greedy=greedy)[0])
    run.model.save(tmp_path / "checkpoint")
    run.model.remove_value_head()
    assert record(play(run.model, run.chat, greedy=greedy)[0]) == with_head
    (tmp_path / "checkpoint" / "value_head.safetensors").unlink()  # and so does an agent that never had one
    agent, _ = training("grpo", seed=2)
    assert record(play(agent.model, agent.chat, greedy=greedy)[0]) != with_head
    agent.model.load(tmp_path / "checkpoint")
    assert record(play(agent.model, agent.chat, greedy=greedy)[0]) == with_head


def test_playing_encodes_no_critic_token(training: Begin) -> None:
    run, _ = training()
    episodes, engine = play(run.model, run.chat)
    # Everything but the last token, which nothing follows, is read once: nothing else went through the model.
    assert engine.encoded_tokens + engine.reused_tokens == sum(len(path(e)) - 1 for e in episodes)
    assert run.learner.critic_prompt and not any(contains(path(e), run.learner.critic_prompt) for e in episodes)
    assert run.model.counters.critic_tokens == 0
    batch = pack([t.root for t in grow(episodes)], run.learner.critic_prompt)
    run.model(batch)  # training does encode them, and says so
    assert run.model.counters.critic_tokens == len(run.learner.critic_prompt) * batch.critic_S.numel() > 0
    tokens = tuple(int(t) for t in batch.token_T)
    assert contains(tokens, run.learner.critic_prompt)


def test_all_values_and_ratios_of_an_episode_come_from_one_forward(training: Begin) -> None:
    run, _ = training()
    episodes, _ = play(run.model, run.chat)
    for episode in episodes:
        n = len(episode.turns)
        batch = pack([t.root for t in grow([episode])], run.learner.critic_prompt)
        passes, tokens = run.model.counters.passes, run.model.counters.tokens
        out = run.model(batch)
        assert (run.model.counters.passes - passes, run.model.counters.tokens - tokens) == (1, len(batch))
        assert len(batch) == len(path(episode)) + (n + 1) * len(run.learner.critic_prompt)
        assert out.value_S is not None and torch.unique(out.value_S).numel() == n + 1
        ratio_A = batch.per_action(out.logp_T - batch.old_logp_T).exp()
        assert ratio_A.shape == (n,)
        assert torch.allclose(ratio_A, torch.ones(n), atol=1e-3)  # the policy that played is the one that learns


def test_an_update_is_one_forward_and_backward_per_minibatch(training: Begin) -> None:
    run, _ = training()
    episodes, _ = play(run.model, run.chat)
    before = run.model.counters.passes
    with allowing(1):  # of several threads, each would count the pass over its own rows
        row = run.learner.learn(1, grow(episodes)).row
        # The reference (LoRA off; no part of the loss here, and measured now and then), and the update itself.
        assert run.model.counters.passes - before == 2
        assert row["mismatch_max_abs"] < 1e-3 and "kl" in row
        row = run.learner.learn(2, grow(episodes)).row
        assert run.model.counters.passes - before == 3
        assert "kl" not in row


@pytest.mark.runs
def test_the_critic_teaches_the_shared_body(training: Begin) -> None:
    """Actor and critic are one model: the critic's loss alone moves LoRA, and detaching it is what stops that."""

    def gradient(detach: bool) -> float:
        run, _ = training()
        episodes, _ = play(run.model, run.chat)
        batch: Batch = pack([t.root for t in grow(episodes)], run.learner.critic_prompt)
        model = run.model
        model.critic = CriticSettings(detach_body=detach)
        algorithm = SelfAC(alpha=1.0)
        with torch.no_grad():
            credit = algorithm.credit(batch, model(batch))
        algorithm.loss(batch, model(batch), credit).total.backward()
        return sum(float(p.grad.abs().sum()) for p in model.policy_parameters() if p.grad is not None)

    assert gradient(detach=False) > 0
    assert gradient(detach=True) == 0
