"""What a figure says it was measured on."""

import platform
from pathlib import Path

import pytest

from runners.reporting.hardware import hardware, processor

ONE = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel\t\t: 49\nmodel name\t: AMD EPYC\n"
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n"


@pytest.mark.parametrize(
    ("says", "name"),
    [
        (f"{ONE}\n{ONE.replace('49', '1')}", "AMD EPYC (family 23, model 49)"),
        ("model name\t: Some Processor\n", "Some Processor"),
        (ARM, platform.machine()),
    ],
)
def test_the_processors_name(says: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda *_: says)
    assert processor() == name and str(hardware()).startswith(f"{name}, ")


def test_where_the_system_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", none)
    assert processor() == (platform.processor() or platform.machine())
