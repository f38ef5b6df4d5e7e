"""Chat templates with tools: those of a package that ships them, and others written here from their documented formats;
and models of each family, as far as they write calls."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from template_cases import TEXT, tokenizer, tokenizer_of

from agent_envs.actions import Args, Grammar, Verb
from agent_envs.tools import tools_of
from agents.text.chat import Chat
from agents.text.settings import ChatSettings, Tools

_SYSTEM_FIRST = (
    "{% set system = messages[0]['content'] if messages[0]['role'] == 'system' else '' %}"
    "{% if system %}{% set messages = messages[1:] %}{% endif %}"
)
HERMES = (
    _SYSTEM_FIRST + "<|im_start|>system\n{{ system }}"
    "{% if tools %}\nYou may call these functions: <tools>{% for t in tools %}{{ t | tojson }}{% endfor %}</tools>"
    "{% endif %}<|im_end|>\n"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'tool' %}<tool_response>\n{{ m['content'] }}\n</tool_response>{% else %}{{ m['content'] }}"
    "{% for c in m['tool_calls'] %}<tool_call>\n{{ c['function'] | tojson }}\n</tool_call>{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_MISTRAL_V3_CALL = (
    "[TOOL_CALLS] [{% for c in m['tool_calls'] %}{\"name\": {{ c['function']['name'] | tojson }}, \"arguments\": "
    "{{ c['function']['arguments'] | tojson }}, \"id\": \"{{ c['id'] }}\"}{% endfor %}]{{ eos_token }}"
)
MISTRAL_V3 = (  # tools and system message stand before the last user message
    _SYSTEM_FIRST + "{{ bos_token }}{% set last = messages | selectattr('role', 'equalto', 'user') | list | last %}"
    "{% for m in messages %}{% if m['role'] == 'user' %}"
    "{% if tools and m == last %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    "[INST] {% if m == last and system %}{{ system }}\n\n{% endif %}{{ m['content'] }}[/INST]"
    "{% elif m['tool_calls'] %}" + _MISTRAL_V3_CALL + "{% elif m['role'] == 'assistant' %} {{ m['content'] }}"
    "{{ eos_token }}{% elif m['role'] == 'tool' %}[TOOL_RESULTS] {\"content\": {{ m['content'] }}, \"call_id\": "
    "\"{{ m['tool_call_id'] }}\"}[/TOOL_RESULTS]{% else %}{{ raise_exception('no such role') }}{% endif %}{% endfor %}"
)
_MISTRAL = (
    _SYSTEM_FIRST + "{{ bos_token }}{% if system %}[SYSTEM_PROMPT]{{ system }}[/SYSTEM_PROMPT]{% endif %}"
    "{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    "{% for m in messages %}{% if m['role'] == 'user' %}[INST]{{ m['content'] }}[/INST]"
    "{% elif m['role'] == 'assistant' %}{{ m['content'] }}{% for c in m['tool_calls'] %}[TOOL_CALLS]"
    "{{ c['function']['name'] }}%s{{ c['function']['arguments'] | tojson }}{% endfor %}{{ eos_token }}"
    "{% elif m['role'] == 'tool' %}[TOOL_RESULTS]%s{{ m['content'] }}[/TOOL_RESULTS]"
    "{% else %}{{ raise_exception('no such role') }}{% endif %}{% endfor %}"
)
MISTRAL_V11 = _MISTRAL.replace("%s", "[CALL_ID]{{ c['id'] }}[ARGS]", 1).replace(
    "%s", "{{ m['tool_call_id'] }}[TOOL_CONTENT]", 1
)
MISTRAL_V13 = _MISTRAL.replace("%s", "[ARGS]", 1).replace("%s", "", 1)
_DEEPSEEK = (
    _SYSTEM_FIRST + "{{ bos_token }}{{ system }}{% if tools %}\n\n## Tools\n{% for t in tools %}{{ t | tojson }}\n"
    "{% endfor %}{% endif %}{% for m in messages %}"
    "{% if m['role'] == 'user' %}<｜User｜>{{ m['content'] }}<｜Assistant｜>OPENED"
    "{% elif m['role'] == 'assistant' %}{{ m['content'] }}{% if m['tool_calls'] %}<｜tool▁calls▁begin｜>"
    "{% for c in m['tool_calls'] %}<｜tool▁call▁begin｜>CALL<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>"
    "{% endif %}"
    "<｜end▁of▁sentence｜>{% elif m['role'] == 'tool' %}RESULT"
    "{% else %}{{ raise_exception('no such role') }}{% endif %}{% endfor %}"
)
_OUTPUT = "<｜tool▁output▁begin｜>{{ m['content'] }}<｜tool▁output▁end｜>"
DEEPSEEK_V3 = (
    _DEEPSEEK.replace("OPENED", "")
    .replace(
        "CALL",
        "function<｜tool▁sep｜>{{ c['function']['name'] }}\n```json\n{{ c['function']['arguments'] | tojson }}\n```",
    )
    .replace("RESULT", f"<｜tool▁outputs▁begin｜>{_OUTPUT}<｜tool▁outputs▁end｜>")
)
DEEPSEEK_V31 = (
    _DEEPSEEK.replace("OPENED", "</think>")
    .replace("CALL", "{{ c['function']['name'] }}<｜tool▁sep｜>{{ c['function']['arguments'] | tojson }}")
    .replace("RESULT", _OUTPUT)
)
LLAMA = (  # by an observation as plain text, unlike the shipped one
    _SYSTEM_FIRST + "{{ bos_token }}<|start_header_id|>system<|end_header_id|>\n\n{{ system }}"
    "{% for t in tools or [] %}\n\n{{ t | tojson }}{% endfor %}<|eot_id|>"
    "{% for m in messages %}<|start_header_id|>{{ 'ipython' if m['role'] == 'tool' else m['role'] }}<|end_header_id|>"
    "\n\n{% if m['tool_calls'] %}<|python_tag|>{\"name\": {{ m['tool_calls'][0]['function']['name'] | tojson }}, "
    "\"parameters\": {{ m['tool_calls'][0]['function']['arguments'] | tojson }}}{% else %}{{ m['content'] | trim }}"
    "{% endif %}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}{# <|eom_id|> #}"
)
BUILT = {
    "hermes": HERMES,
    "mistral v3": MISTRAL_V3,
    "mistral v11": MISTRAL_V11,
    "mistral v13": MISTRAL_V13,
    "deepseek v3 with tools": DEEPSEEK_V3,
    "deepseek v3.1": DEEPSEEK_V31,
    "llama 3 with its tag": LLAMA,
}
SHIPPED = {
    "glm4moe": "GLM",
    "llama3_1": "Llama 3",
    "llama3_2": "Llama 3",
    "nemotron_3_5_lightning": "Qwen3-Coder",
    "nemotron_3_nano": "Qwen3-Coder",
    "nemotron_3_super": "Qwen3-Coder",
    "nemotron_3_ultra": "Qwen3-Coder",
    "qwen2_5": "Hermes (Qwen)",
    "qwen3": "Hermes (Qwen)",
    "qwen3_5_nothink": "Qwen3-Coder",
    "qwen3_5_think": "Qwen3-Coder",
    "qwen3_6": "Qwen3-Coder",
    "qwen3_8": "Qwen3-Coder",
    "qwen3_instruct_2507": "Hermes (Qwen)",
    "qwen3_vl": "Hermes (Qwen)",
}
"""Templates of the package in whose format calls are read; their variants for training read alike."""
FORMAT_OF = {
    name: SHIPPED[name.removesuffix("_training")] for name in TEXT if name.removesuffix("_training") in SHIPPED
}
FORMAT_OF |= dict(
    zip(
        BUILT,
        ("Hermes (Qwen)", "Mistral", "Mistral", "Mistral", "DeepSeek", "DeepSeek", "Llama 3"),
        strict=True,
    )
)

GRAMMAR = Grammar(
    Verb("SEARCH", "query[, page=n]"),
    Verb("EDIT", "a:b", lines={"en": "new lines"}, body=Args.REQUIRED),
    Verb("BACK", "", Args.NONE),
)
TOOLS = tools_of(GRAMMAR, "en")


@cache
def chat_of(name: str, kind: type[Chat] = Chat) -> Chat:
    made = tokenizer_of(BUILT[name]) if name in BUILT else tokenizer(name)
    return kind(made, ChatSettings(tools=Tools.ON))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _xml(name: str, arguments: Mapping[str, str]) -> str:
    written = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{written}</function>\n</tool_call>"


def _glm(name: str, arguments: Mapping[str, str]) -> str:
    pairs = arguments.items()
    written = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in pairs)
    return f"<tool_call>{name}\n{written}</tool_call>"


def _deepseek(call: str) -> str:
    return f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{call}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"


Writer = Callable[[str, Mapping[str, str]], str]
WRITERS: Mapping[str, tuple[Writer, ...]] = {
    "Hermes (Qwen)": (lambda n, a: f'<tool_call>\n{{"name": {_json(n)}, "arguments": {_json(a)}}}\n</tool_call>',),
    "Qwen3-Coder": (_xml,),
    "GLM": (_glm,),
    "Llama 3": (
        lambda n, a: f'{{"name": {_json(n)}, "parameters": {_json(a)}}}',
        lambda n, a: f'<|python_tag|>{{"name": {_json(n)}, "parameters": {_json(a)}}}',
        lambda n, a: f'<|python_tag|>{{"type": "function", "name": {_json(n)}, "parameters": {_json(a)}}}<|eom_id|>',
    ),
    "Mistral": (
        lambda n, a: f'[TOOL_CALLS] [{{"name": {_json(n)}, "arguments": {_json(a)}, "id": "abcdefghi"}}]',
        lambda n, a: f"[TOOL_CALLS]{n}[ARGS]{_json(a)}",
        lambda n, a: f"[TOOL_CALLS]{n}[CALL_ID]abcdefghi[ARGS]{_json(a)}",
    ),
    "DeepSeek": (
        lambda n, a: _deepseek(f"function<｜tool▁sep｜>{n}\n```json\n{_json(a)}\n```"),
        lambda n, a: _deepseek(f"{n}<｜tool▁sep｜>{_json(a)}"),
    ),
}
"""Format → how models write a call in it."""
TEXTUAL = {"Qwen3-Coder": ("</parameter>",), "GLM": ("</arg_value>",)}
"""Formats whose arguments stand as they are, and what ends one."""
