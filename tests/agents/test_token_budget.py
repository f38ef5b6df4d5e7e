"""A pass that runs out of memory is repeated on fewer tokens, with the same loss and the same gradient."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from tree_cases import CRITIC_PROMPT, actor_critic, coupled, relative, trees

from agents.model.actor_critic import ActorCritic
from agents.text.errors import ModelError
from agents.tree import Batch, Forward
from agents.tree.chunked_backward import backward, critic_hidden, cut, forward_parts
from agents.tree.packing import pack
from agents.tree.token_budget import TokenBudget, fits, out_of_memory


class Small(nn.Module):
    """A model on a device that holds passes of up to ``most`` tokens: forwards, or, ``late``, backwards only.

    Late, memory runs out in the middle of a backward pass, after some gradients were added and before others.
    """

    def __init__(self, model: ActorCritic, most: int, late: bool) -> None:
        super().__init__()
        self.model, self.most, self.late = model, most, late
        self.ran_out, self.half_done = 0, 0
        self.first = model.causal_model.model.layers[0]  # type: ignore[union-attr]

    def fail(self, *_: object) -> None:
        self.ran_out += 1
        self.half_done += any(p.grad is not None and bool(p.grad.any()) for p in self.model.parameters())
        raise torch.OutOfMemoryError("CUDA out of memory. (not really)")

    def forward(self, batch: Batch) -> Forward:
        if len(batch) <= self.most or (self.late and not torch.is_grad_enabled()):
            return self.model(batch)
        if not self.late:
            self.fail()

        def hook(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            output.register_hook(self.fail)

        handle = self.first.register_forward_hook(hook)
        try:
            return self.model(batch)
        finally:
            handle.remove()


def batch_of() -> Batch:
    return pack([root for seed in range(4) for root in trees("several", seed)], CRITIC_PROMPT)


def grads(model: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def step(model: ActorCritic, run: nn.Module, batch: Batch, budget: TokenBudget) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad()
    loss = backward(run, batch, coupled(batch), budget)
    return loss.total.detach(), grads(model)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("begin", [10**6, 300])
def test_nothing_is_lost_or_counted_twice(late: bool, begin: int) -> None:
    """The budget is the whole batch at first, or several parts already."""
    model, batch = actor_critic("qwen3"), batch_of()
    longest = int(batch.pos_T.max()) + 1
    small = Small(model, max(longest, 90), late)
    whole_loss, whole = step(model, model, batch, TokenBudget(10**6))
    budget = TokenBudget(begin)
    loss, ours = step(model, small, batch, budget)
    assert small.ran_out == budget.halved > 1 and longest <= budget.tokens <= small.most
    assert (small.half_done > 0) is late, "memory ran out when some gradients were there already"
    assert (loss - whole_loss).abs() <= 1e-5
    assert relative(ours, whole) <= 1e-5
    again, kept = budget.halved, budget.tokens
    assert relative(step(model, small, batch, budget)[1], whole) <= 1e-5
    assert (budget.halved, budget.tokens) == (again, kept), "the smaller budget is kept"


def test_gradients_that_were_there_before_stay() -> None:
    model, batch = actor_critic("qwen3"), batch_of()
    _, whole = step(model, model, batch, TokenBudget(10**6))
    backward(Small(model, 90, late=True), batch, coupled(batch), TokenBudget(10**6))
    assert relative(grads(model), [2 * g for g in whole]) <= 1e-5


def test_without_putting_back_the_gradient_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the same repetition, with what the failed pass had added left in."""

    def careless(work: Callable[[], object], _parameters: object = ()) -> bool:
        return fits(work, ())

    monkeypatch.setattr("agents.tree.chunked_backward.fits", careless)
    model, batch = actor_critic("qwen3"), batch_of()
    whole_loss, whole = step(model, model, batch, TokenBudget(10**6))
    loss, ours = step(model, Small(model, 90, late=True), batch, TokenBudget(10**6))
    assert (loss - whole_loss).abs() <= 1e-5 and relative(ours, whole) > 1e-2


@torch.no_grad()
def test_passes_without_gradient_are_repeated_too() -> None:
    model, batch, budget = actor_critic("qwen3"), batch_of(), TokenBudget(10**6)
    small = Small(model, 90, late=False)
    whole, ours = model(batch), forward_parts(small, batch, budget)
    assert budget.halved == small.ran_out > 0
    assert (ours.logp_T - whole.logp_T).abs().max() <= 1e-5 and (ours.value_S - whole.value_S).abs().max() <= 1e-5

    def hidden(part: Batch) -> Tensor:
        if len(part) > 90:
            raise MemoryError
        return model.hidden(part)

    read_ND, state_N = critic_hidden(hidden, batch, 10**6)
    assert torch.equal(state_N, torch.arange(batch.critic_S.numel()))
    assert (read_ND - batch.at_prompts(model.hidden(batch))[0]).abs().max() <= 1e-5


def test_an_episode_that_is_longer_than_those_that_ran_out_has_a_pass_of_its_own() -> None:
    model, batch = actor_critic("qwen3"), batch_of()
    longest = int(batch.pos_T.max()) + 1
    whole, budget = model(batch), TokenBudget(longest // 2, halved=1)
    ours = forward_parts(Small(model, longest, late=False), batch, budget)
    assert (ours.logp_T - whole.logp_T).abs().max() <= 1e-5 and budget == TokenBudget(longest // 2, halved=1)
    with pytest.raises(ModelError, match=f"an episode of {longest} tokens does not fit {longest // 2} per forward"):
        forward_parts(model, batch, TokenBudget(longest // 2))


def test_an_episode_that_fits_nowhere_ends_in_one_line() -> None:
    model, batch = actor_critic("qwen3"), batch_of()
    longest = int(batch.pos_T.max()) + 1
    with pytest.raises(ModelError, match=f"one episode of {longest} tokens, which cannot be cut: set --gradient"):
        step(model, Small(model, longest - 1, late=False), batch, TokenBudget(10**6))
    assert cut(batch, longest)


def test_other_errors_are_not_swallowed() -> None:
    def broken() -> None:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes"):
        fits(broken)
    assert not out_of_memory(ValueError("x")) and out_of_memory(torch.OutOfMemoryError("x"))

    def unknown(_batch: Batch) -> Forward:
        raise torch.OutOfMemoryError("of a function whose parameters nobody knows")

    with pytest.raises(torch.OutOfMemoryError):
        backward(unknown, batch_of(), coupled(batch_of()), TokenBudget(10**6))


REAL = """
    import resource, sys
    import torch
    sys.path.insert(0, "tests/agents")
    from test_token_budget import batch_of, coupled, grads
    from tree_cases import actor_critic, relative
    from agents.tree.chunked_backward import backward
    from agents.tree.token_budget import TokenBudget

    torch.set_num_threads(1)
    model, batch = actor_critic("qwen3"), batch_of()
    backward(model, batch, coupled(batch), TokenBudget(10**6))
    whole = grads(model)
    model.zero_grad()
    forward = model.forward

    def hungry(part):  # a pass that takes a gigabyte for 200 tokens
        extra = torch.empty(len(part) * 5_000_000, dtype=torch.uint8)
        return forward(part)

    model.forward = hungry
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 700 * 2**20, -1))
    budget = TokenBudget(10**6)
    backward(model, batch, coupled(batch), budget)
    print(budget.halved, budget.tokens, relative(grads(model), whole) <= 1e-5)
"""


@pytest.mark.runs
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are those of Linux")
def test_real_memory_that_runs_out_on_a_cpu() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(REAL)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    halved, tokens, same = ran.stdout.split()
    assert int(halved) >= 1 and int(tokens) <= 140 and same == "True"
