"""The sources of the zygote, and how a bare interpreter starts with nothing else.

Invariant: the interpreter reads one message from the descriptor it is told, and no file but its standard library; so it
starts as any user, from any folder, and in a container that knows nothing of this project.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

_PACKAGE = "agent_envs.code.sandbox.zygote"

BOOT = """
import importlib.machinery, json, os, sys
def read(fd, size):
    data = b""
    while len(data) < size:
        data += os.read(fd, size - len(data)) or sys.exit(4)
    return data
class Bundle:
    turnwise = True
    def find_spec(self, name, path, target=None):
        if name in sources:
            package = any(other.startswith(name + ".") for other in sources)
            return importlib.machinery.ModuleSpec(name, self, is_package=package)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        name = module.__name__
        exec(compile(sources[name], "<" + name + ">", "exec", dont_inherit=True), module.__dict__)
fd = int(sys.argv[1])
sources, main, config = json.loads(read(fd, int.from_bytes(read(fd, 8), "big")))
sys.meta_path.insert(0, Bundle())
importlib.import_module(main).main(config)
"""

OPTIONS = ("-S", "-P", "-s", "-B", "-X", "utf8", "-c", BOOT)
"""Of the interpreter; the descriptor follows."""
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8"}
"""Of the interpreter; sets and dictionaries are in the same order in every run."""


@cache
def _sources() -> dict[str, str]:
    result = {"agent_envs": "", "agent_envs.code": "", "agent_envs.code.sandbox": ""}
    for file in resources.files(_PACKAGE).iterdir():
        if file.name.endswith(".py"):
            stem = file.name.removesuffix(".py")
            name = _PACKAGE if stem == "__init__" else f"{_PACKAGE}.{stem}"
            result[name] = file.read_text("utf-8")
    return result


def message(main: str, config: Mapping[str, Any]) -> bytes:
    """What the interpreter is to read: the sources, which of them has the ``main``, and what it is called with."""
    body = json.dumps([_sources(), f"{_PACKAGE}.{main}", dict(config)]).encode()
    return struct.pack("!Q", len(body)) + body
