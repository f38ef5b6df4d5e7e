"""An engine that needs an extra or a process of its own says so before anything is loaded."""

import pytest

from agents.engine import ENGINES, EngineChoice, SamplingSettings
from agents.engine.base import refuse_both_cuts
from agents.text.errors import EngineError


def installed(monkeypatch: pytest.MonkeyPatch, there: bool) -> None:
    monkeypatch.setattr("agent_envs.plugins.find_spec", lambda name: object() if there else None)


def test_a_missing_package_is_one_line_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, False)
    with pytest.raises(EngineError, match=r"^--engine vllm is not installed: pip install 'turnwise\[vllm\]'$"):
        EngineChoice("vllm").check(apart=True)
    EngineChoice().check(apart=False)
    listed = {part.name: part.missing for part in ENGINES.listing()}
    assert listed["vllm"] == "not installed: pip install 'turnwise[vllm]'" and listed["hf"] == ""


def test_a_process_of_its_own_is_one_line_that_names_the_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, True)
    with pytest.raises(EngineError, match="needs a process of its own: set --workers 1 or more"):
        EngineChoice("vllm").check(apart=False)
    EngineChoice("vllm").check(apart=True)
    assert {part.name: part.missing for part in ENGINES.listing()}["vllm"] == ""


def test_what_the_own_sampler_of_vllm_cuts_otherwise_is_refused() -> None:
    with pytest.raises(EngineError, match="set one of them"):
        refuse_both_cuts(SamplingSettings(top_p=0.7, top_k=9))
    for allowed in (SamplingSettings(top_p=0.7), SamplingSettings(top_k=9), SamplingSettings(1, True, 0.7, 9)):
        refuse_both_cuts(allowed)
