"""The two samplers: what a request asks of vLLM, and what its completion says of each token.

Invariant: a greedy token is always taken by the project's own draws, because vLLM's greedy log-probs ignore the
temperature.
"""

import math
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from vllm import SamplingParams
from vllm.logprobs import FlatLogprobs
from vllm.sampling_params import RequestOutputKind

from agents.engine.base import Capabilities, Request, SamplingSettings, refuse_both_cuts, uniforms
from agents.engine.vllm.draws import Drawn, extra
from agents.text.errors import EngineError

Figures = tuple[tuple[float, ...], tuple[float, ...]]
"""(log-probability, entropy) of each token."""


class TokenSampler(Protocol):
    """Draws for one engine."""

    capabilities: Capabilities
    how: str
    """For `describe`."""

    def params(self, number: int, request: Request, limit: int, sampling: SamplingSettings) -> SamplingParams:
        """What vLLM is asked for; ``number`` is the request's own, ``limit`` how many tokens it may have."""

    def figures(self, number: int, tokens: Sequence[int], logprobs: Sequence[FlatLogprobs]) -> Figures:
        """Of the ``tokens`` that vLLM sampled, in parts, with these ``logprobs``."""

    def drop(self, number: int) -> None:
        """The request is over."""


class OwnSampler:
    """Philox uniforms and the inverse CDF, as in the default engine."""

    capabilities = Capabilities(reproducible=True, forks=True, full_entropy=True, thought_cuts=True)
    how = "the project's own draws"

    def __init__(self, stop_ids: Collection[int], drawn: dict[int, Drawn]) -> None:
        self.stop_ids, self.drawn = list(stop_ids), drawn

    def params(self, number: int, request: Request, limit: int, sampling: SamplingSettings) -> SamplingParams:
        self.drawn[number] = Drawn(uniforms(request.seed, limit, request.skip).tolist(), sampling)
        return asked(self.stop_ids, limit, temperature=0.0, extra_args=extra(number))

    def figures(self, number: int, tokens: Sequence[int], logprobs: Sequence[FlatLogprobs]) -> Figures:
        out = self.drawn[number].out[: len(tokens)]
        if [int(token) for token, _, _ in out] != list(tokens):
            raise EngineError("vLLM sampled other tokens than were drawn: use --vllm.sampler native, or --engine hf")
        return tuple(logp for _, logp, _ in out), tuple(entropy for _, _, entropy in out)

    def drop(self, number: int) -> None:
        self.drawn.pop(number, None)


class NativeSampler:
    """vLLM's sampler, with the log-probs of the distribution it drew from."""

    def __init__(self, own: OwnSampler, top: int) -> None:
        self.own, self.top = own, top
        self.capabilities = Capabilities(full_entropy=not top, thought_cuts=True)
        self.how = f"vLLM's own sampler, entropies of {f'the {top} most probable tokens' if top else 'all tokens'}"

    def params(self, number: int, request: Request, limit: int, sampling: SamplingSettings) -> SamplingParams:
        if sampling.greedy:
            return self.own.params(number, request, limit, sampling)
        refuse_both_cuts(sampling)
        return asked(
            self.own.stop_ids,
            limit,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            # vLLM takes 63 bits; a turn that goes on after `skip` tokens must not use the first ones' numbers again.
            seed=(request.seed + request.skip * 0x9E3779B97F4A7C15) % (1 << 63),
            logprobs=self.top or -1,
            flat_logprobs=True,
        )

    def figures(self, number: int, tokens: Sequence[int], logprobs: Sequence[FlatLogprobs]) -> Figures:
        if number in self.own.drawn:
            return self.own.figures(number, tokens, logprobs)
        logp: list[float] = []
        entropy: list[float] = []
        for part in logprobs:
            for start, end in zip(part.start_indices, part.end_indices, strict=True):
                among = dict(zip(part.token_ids[start:end], part.logprobs[start:end], strict=True))
                logp.append(among[tokens[len(logp)]])
                entropy.append(-math.fsum(math.exp(x) * x for x in among.values() if x > -math.inf))
        return tuple(logp), tuple(entropy)

    def drop(self, number: int) -> None:
        self.own.drop(number)


def asked(stop_ids: Collection[int], limit: int, **how: Any) -> SamplingParams:
    """At most ``limit`` tokens, up to the first of ``stop_ids`` and to no other end token; each is told as it comes."""
    return SamplingParams(
        max_tokens=limit,
        stop_token_ids=list(stop_ids),
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        skip_clone=True,
        **how,
    )
