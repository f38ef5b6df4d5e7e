"""The actions of the coding environment."""

from agent_envs.actions import Args, Verb
from agent_envs.code.arguments import SEPARATOR

_FILE = "[file, ]"
_FILE_ZH = "[文件, ]"
_LINES = {"en": "new lines", "zh": "新的行"}
VERBS = (
    Verb("VIEW", f"{_FILE}a:b", Args.OPTIONAL, {"zh": "查看"}, {"zh": f"{_FILE_ZH}a:b"}),
    Verb("SEARCH", "text[, file]", aliases={"zh": "搜索"}, usages={"zh": "文字[, 文件]"}),
    Verb("CREATE", "file", Args.REQUIRED, {"zh": "新建"}, {"zh": "文件"}, _LINES, Args.REQUIRED),
    Verb("EDIT", f"{_FILE}a:b", Args.REQUIRED, {"zh": "编辑"}, {"zh": f"{_FILE_ZH}a:b"}, _LINES, Args.REQUIRED),
    Verb(
        "REPLACE", f"{_FILE}[a:b]", Args.OPTIONAL, {"zh": "替换"}, {"zh": f"{_FILE_ZH}[a:b]"},
        {"en": f"old text⏎{SEPARATOR}⏎new text", "zh": f"旧的文字⏎{SEPARATOR}⏎新的文字"}, Args.REQUIRED,
    ),
    Verb(
        "RUN", "[file]", Args.OPTIONAL, {"zh": "运行"}, {"zh": "[文件]"},
        {"en": "[input]", "zh": "[输入]"}, Args.OPTIONAL,
    ),
    Verb("TEST", "", Args.NONE, {"zh": "测试"}),
    Verb("UNDO", "", Args.NONE, {"zh": "撤销"}),
    Verb("SUBMIT", "", Args.NONE, {"zh": "提交"}),
)  # fmt: skip
BASH = Verb("BASH", "command", aliases={"zh": "命令"}, usages={"zh": "命令"})
"""Only where it is asked for."""
