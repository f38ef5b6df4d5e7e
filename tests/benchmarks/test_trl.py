"""The comparison with TRL: what can be checked without TRL, and all of it where TRL is installed."""

from importlib import util
from pathlib import Path

import pytest

from benchmarks import trl
from benchmarks.single_turn import Shape, Split, prompts


def test_one_line_says_how_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as stop:
        trl.check_installed()
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.count("\n") == 1 and "pip install trl==" in said


def test_a_word_is_a_token_and_no_token_ends() -> None:
    text = prompts(1, Shape(1), 2048)[0]
    tokenizer = trl.tokenizer(2048)
    assert tokenizer(text)["input_ids"] == [int(word) for word in text.split()]
    assert tokenizer.eos_token_id == 2048 and tokenizer.pad_token_id == 0


def test_conditions_see_other_work_and_a_slow_step() -> None:
    shape = Shape(1)

    def result(sampled: int, ours: float, read: int = 480) -> list[bool]:
        found = {
            name: [Split(seconds, 0.0, 0.0, read, n, 1000)] * 5
            for name, seconds, n in ((trl.TRL, 2.0, 1024), (trl.OURS, ours, sampled))
        }
        return [holds for _, holds in trl.conditions({"x": trl.summary(shape, found)})]

    assert result(1024, 1.0) == [True, True, True]
    assert result(1023, 1.0) == [True, False, True]
    assert result(1024, 1.0, read=500) == [False, False, True]
    assert result(1024, 1.5) == [True, True, False]


@pytest.mark.skipif(util.find_spec("trl") is None, reason="TRL is installed only where one compares with it")
def test_both_sample_and_train_what_is_said(tmp_path: Path) -> None:
    shape = Shape(groups=2, prompt=6, answer=5)
    found = trl.steps(shape, "2M", 2, str(tmp_path))
    for name, splits in found.items():
        assert [(split.read, split.sampled) for split in splits] == [(shape.read, shape.sampled)] * 2, name
        assert all(0 < split.generation < split.step and split.learning > 0 for split in splits)
    assert found[trl.TRL][0].trained == shape.answers * (shape.prompt + shape.answer)
