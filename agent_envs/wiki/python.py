"""The wiki with a python tool beside its pages: search and python, as in ARPO's tasks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from agent_envs.actions import Grammar
from agent_envs.code.python_tool import PythonSettings, PythonTool, with_python
from agent_envs.wiki.config import WikiConfig
from agent_envs.wiki.env import WikiEnv


@dataclass(frozen=True)
class WikiPythonConfig(PythonSettings, WikiConfig):
    """Settings of the wiki with a python tool."""


class WikiPythonEnv(PythonTool, WikiEnv):
    """Answer multi-hop questions with the pages of a wiki and a Python tool."""

    name: ClassVar[str] = "wiki_python"
    Config: ClassVar[type[Any]] = WikiPythonConfig
    config: WikiPythonConfig
    grammar: ClassVar[Grammar] = with_python(WikiEnv.grammar)
    tools: ClassVar[Mapping[str, frozenset[str]]] = {**WikiEnv.tools, "python": frozenset({"PYTHON"})}
