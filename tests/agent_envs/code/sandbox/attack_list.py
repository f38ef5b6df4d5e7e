"""The attacks. Names are those of the table in docs/sandbox.md, two or three to a line there."""

from __future__ import annotations

from attacks_host import HOST
from attacks_sandbox import SANDBOX
from attacks_use import USE

ATTACKS = [*USE, *HOST, *SANDBOX]
