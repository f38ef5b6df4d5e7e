"""The same episodes sampled by our engine, and in two ways by ``generate()`` called once per turn.

Invariant: every way reads the same new tokens before each turn and samples the same number of tokens in it (nothing
ends a turn early), at temperature 1 from the whole distribution; a history holds what that way sampled itself.
``generate()`` gets rows sorted by length and, in its second form, keeps its cache from turn to turn. It is not asked
for log-probabilities and entropies, which the engine records with every token.
"""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig, PreTrainedModel

from agents.engine import Engine, Request
from agents.engine.hf import HFEngine


@dataclass(frozen=True)
class Turn:
    """One turn of an episode."""

    reads: tuple[int, ...]
    """What is new to the agent: the prompt, or an observation."""
    samples: int
    """Tokens that it then samples."""


Episode = tuple[Turn, ...]


@dataclass
class Done:
    """What a way of sampling did."""

    histories: list[tuple[int, ...]]
    """Everything that was read and sampled, per episode."""
    sampled: int
    """Tokens that belong to an episode."""

    def add(self, episode: int, new: Sequence[int]) -> None:
        self.histories[episode] += tuple(new)
        self.sampled += len(new)


def made_up(count: int, turns: int, reads: int, samples: int, vocabulary: int) -> list[Episode]:
    """Episodes of one shape; what they read differs from the first token on, so that nothing can be shared."""
    generator = torch.Generator().manual_seed(0)
    text = torch.randint(1, vocabulary, (count, turns, reads), generator=generator).tolist()
    return [tuple(Turn(tuple(new), samples) for new in episode) for episode in text]


def recorded(lines: Iterable[str]) -> list[Episode]:
    """Episodes from lines of a run's episodes.jsonl."""
    result = []
    for line in lines:
        record = json.loads(line)
        reads = [record["prompt_tokens"], *(turn["observation_tokens"] for turn in record["turns"])]
        result.append(tuple(Turn(tuple(r), len(t["tokens"])) for r, t in zip(reads, record["turns"], strict=False)))
    return [episode for episode in result if episode]


def read_recorded(path: Path, update: int, count: int) -> list[Episode]:
    """The first ``count`` episodes of an update of the run that wrote ``path``."""

    def lines() -> Iterator[str]:
        with path.open(encoding="utf-8") as file:
            mine = (line for line in file if json.loads(line)["update"] == update)
            yield from (line for line, _ in zip(mine, range(count), strict=False))

    return recorded(lines())


def uneven(count: int, vocabulary: int, seed: int = 0) -> list[Episode]:
    """Short episodes of many shapes, where no recorded ones are at hand."""
    rng = random.Random(seed)

    def turn() -> Turn:
        return Turn(tuple(rng.randrange(1, vocabulary) for _ in range(rng.randint(5, 30))), rng.randint(2, 12))

    return [tuple(turn() for _ in range(rng.randint(1, 5))) for _ in range(count)]


def endless(model: PreTrainedModel) -> PreTrainedModel:
    """The model, whose ``generate()`` no longer stops at an end token by itself."""
    model.generation_config = GenerationConfig(pad_token_id=0)
    return model


def engine_of(model: PreTrainedModel, todo: Sequence[Episode]) -> HFEngine:
    """An engine that has room for all episodes at once and no token that ends a turn."""
    longest = max(sum(len(turn.reads) + turn.samples for turn in episode) for episode in todo)
    return HFEngine(model, [], max_length=longest + 1, slots=len(todo))


def with_engine(engine: Engine, todo: Sequence[Episode]) -> Done:
    """All episodes at once; each goes on as soon as its turn is sampled."""
    done = Done([() for _ in todo], 0)
    turn = [0] * len(todo)

    def submit(i: int) -> None:
        now = todo[i][turn[i]]
        done.histories[i] += now.reads
        engine.submit(Request(i, now.reads, now.samples, seed=100 * i + turn[i]))

    for i in range(len(todo)):
        submit(i)
    while engine.pending:
        for completion in engine.step():
            i = completion.session
            done.add(i, completion.tokens)
            turn[i] += 1
            if turn[i] < len(todo[i]):
                submit(i)
            else:
                engine.close_session(i)
    return done


def _settings(new: int, greedy: bool) -> GenerationConfig:
    return GenerationConfig(
        max_new_tokens=new,
        do_sample=not greedy,
        temperature=None if greedy else 1.0,
        top_k=None if greedy else 0,
        top_p=None if greedy else 1.0,
        use_cache=True,
        pad_token_id=0,
        eos_token_id=None,
    )


@torch.inference_mode()
def with_generate(model: PreTrainedModel, todo: Sequence[Episode], batch: int, *, greedy: bool = False) -> Done:
    """A call per turn that reads the whole history again: left padding, rows of like length together."""
    done = Done([() for _ in todo], 0)
    for turn in range(max(map(len, todo))):
        live = [i for i, episode in enumerate(todo) if turn < len(episode)]
        for i in live:
            done.histories[i] += todo[i][turn].reads
        live.sort(key=lambda i: len(done.histories[i]))
        for start in range(0, len(live), batch):
            rows = live[start : start + batch]
            longest = max(len(done.histories[i]) for i in rows)
            pads = [longest - len(done.histories[i]) for i in rows]
            ids = torch.tensor([(0,) * pad + done.histories[i] for i, pad in zip(rows, pads, strict=True)])
            mask = (torch.arange(longest) >= torch.tensor(pads)[:, None]).long()
            most = max(todo[i][turn].samples for i in rows)
            out = model.generate(ids, attention_mask=mask, generation_config=_settings(most, greedy))
            for i, new in zip(rows, out[:, longest:].tolist(), strict=True):
                done.add(i, new[: todo[i][turn].samples])
    return done


def with_kept_cache(model: PreTrainedModel, todo: Sequence[Episode], *, greedy: bool = False) -> Done:
    """``generate()`` that goes on from its own ``past_key_values``, all episodes in step."""

    def sample(ids: Tensor, mask: Tensor, most: int, cache: DynamicCache) -> Tensor:
        settings, longest = _settings(most, greedy), ids.shape[1]
        return model.generate(ids, attention_mask=mask, past_key_values=cache, generation_config=settings)[:, longest:]

    return _in_step(model, todo, sample)


def with_loop(model: PreTrainedModel, todo: Sequence[Episode], *, greedy: bool = False) -> Done:
    """A loop over the model with a kept cache, as somebody would write it by hand: nothing of ``generate()``."""
    generator = torch.Generator().manual_seed(0)

    def sample(ids: Tensor, mask: Tensor, most: int, cache: DynamicCache) -> Tensor:
        new, drawn = ids[:, cache.get_seq_length() :], []
        for _ in range(most):
            pos = (mask.cumsum(-1) - 1)[:, -new.shape[1] :].clamp_min(0)
            out = model(input_ids=new, attention_mask=mask, position_ids=pos, past_key_values=cache, logits_to_keep=1)
            logits_BV = out.logits[:, -1]
            if greedy:
                new = logits_BV.argmax(-1, keepdim=True)
            else:  # multinomial() takes several times as long
                cdf_BV = logits_BV.softmax(-1).cumsum(-1)
                uniform_B1 = torch.rand(len(cdf_BV), 1, generator=generator) * cdf_BV[:, -1:]
                new = torch.searchsorted(cdf_BV, uniform_B1, right=True).clamp_max(cdf_BV.shape[1] - 1)
            drawn.append(new)
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        return torch.cat(drawn, 1)

    return _in_step(model, todo, sample)


@torch.inference_mode()
def _in_step(
    model: PreTrainedModel,
    todo: Sequence[Episode],
    sample: Callable[[Tensor, Tensor, int, DynamicCache], Tensor],
) -> Done:
    """All episodes turn by turn. ``sample`` goes on with tokens and mask (B, all so far), of which the cache has some.

    What a shorter row does not need stays in its cache as a hole that the attention mask hides.
    """
    done = Done([() for _ in todo], 0)
    live = list(range(len(todo)))
    cache = DynamicCache(config=model.config)
    ids = mask = torch.zeros(len(todo), 0, dtype=torch.long)
    for turn in range(max(map(len, todo))):
        stay = [at for at, i in enumerate(live) if turn < len(todo[i])]
        if len(stay) < len(live):
            live = [live[at] for at in stay]
            ids, mask = ids[stay], mask[stay]
            cache.batch_select_indices(torch.tensor(stay))
        for i in live:
            done.histories[i] += todo[i][turn].reads
        new_ids, new_mask = _left_padded([todo[i][turn].reads for i in live])
        ids, mask = torch.cat([ids, new_ids], 1), torch.cat([mask, new_mask], 1)
        samples = torch.tensor([todo[i][turn].samples for i in live])
        most = int(samples.max())
        drawn = sample(ids, mask, most, cache)
        ids = torch.cat([ids, drawn], 1)
        mask = torch.cat([mask, (torch.arange(most) < samples[:, None]).long()], 1)
        for i, new in zip(live, drawn.tolist(), strict=True):
            done.add(i, new[: todo[i][turn].samples])
    return done


def _left_padded(rows: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
    longest = max(map(len, rows))
    pads = torch.tensor([longest - len(row) for row in rows])
    ids = torch.tensor([(0,) * (longest - len(row)) + row for row in rows])
    return ids, (torch.arange(longest) >= pads[:, None]).long()
