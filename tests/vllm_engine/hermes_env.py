"""The identity environment for a model that calls tools in the Hermes format: its turns are the text of calls, and its
system prompt names the tools as the server's chat template does."""

import json
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from agent_envs.actions import Action, Grammar, Verb
from agent_envs.identity.config import IdentityConfig
from agent_envs.identity.env import IdentityEnv
from agent_envs.tools import ONE_CALL, as_turn, no_action

CALL = re.compile(r"<tool_call>\s*(\{.*\})\s*</tool_call>", re.DOTALL)
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>"
    "{% if m['tool_calls'] %}{% for c in m['tool_calls'] %}"
    '<tool_call>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</tool_call>'
    "{% endfor %}{% else %}{{ m['content'] }}{% endif %}"
    "{% if m['role'] == 'system' and tools %}"
    "{{ '\n' }}Tools:{% for t in tools %} {{ t.function.name }}"
    "({{ t.function.parameters.properties | join(', ') }}){% endfor %}"
    "{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""The tiny model's chat template, with tools and calls."""


@dataclass(frozen=True)
class HermesConfig(IdentityConfig):
    """Settings of the identity environment."""


class Hermes(Grammar):
    """Reads a turn as vLLM's parser does: a call, or text."""

    def parse(self, text: str) -> Action:
        found = CALL.search(text)
        if found is None:
            return super().parse(text)
        try:
            call = json.loads(found[1])
            return super().parse(as_turn(None, call["name"], call["arguments"]))
        except (ValueError, KeyError, TypeError, AttributeError):
            return super().parse(no_action())


class HermesEnv(IdentityEnv):
    """The same task."""

    name: ClassVar[str] = "hermes"
    Config: ClassVar[type[Any]] = HermesConfig
    grammar: ClassVar[Grammar] = Hermes(Verb("SAY", "word"))

    def system_prompt(self) -> str:
        return f"{self.instructions('en')}\n{ONE_CALL['en']}\nTools: SAY(word)"

    def expert(self, *, flaw: float = 0.0, rng: np.random.Generator | None = None) -> str:
        word = self.grammar.parse(super().expert(flaw=flaw, rng=rng)).args
        return f'<tool_call>{{"name": "SAY", "arguments": {{"word": "{word}"}}}}</tool_call>'
