"""Settings of the coding environment; every mistake in them is one line."""

from dataclasses import dataclass

from agent_envs.code.sandbox import Limits
from agent_envs.code.sandbox.choose import NAMES
from agent_envs.code.tasks.settings import Grader, TaskSettings
from agent_envs.core import SettingsError
from agent_envs.ranges import check_ranges, check_share

_WITH_BASH = ("namespace", "docker")


@dataclass(frozen=True)
class CodeConfig(TaskSettings):
    """Settings of the coding environment."""

    sandbox: str = "auto"
    """Where programs run: auto, namespace, landlock, docker, or unsafe-process, which keeps nothing from them."""
    turns: int = 16
    """Turns within which the work must be done; after the last one the files are judged as they stand."""
    max_turns: int = 40
    """No episode has more turns: more `turns` are refused."""
    window: int = 40
    """Most lines of a file shown at once."""
    echo: int = 1
    """Lines shown around those that an edit changed."""
    output_tokens: int = 400
    """Most words and signs of what a program prints, or of the rows of an answer, that are shown: the rest of it is
    left out of the middle."""
    bash: bool = False
    """Also offer BASH(command); with sandbox namespace or docker only."""
    seconds: float = 5.0
    """Time that one program may run."""
    case_seconds: float = 0.25
    """Computing time that one check may take; one that waits instead is ended after ten times as long."""
    memory_mb: int = 256
    """Memory of a program in MiB."""
    files: int = 32
    """Most files that there may be."""
    file_kb: int = 64
    """Largest size of a file in KiB."""
    skill: float = 0.8
    """Chance that the agent of whom the oracle speaks makes the expert's next turn; its other turns change nothing."""

    @property
    def limits(self) -> Limits:
        """What one program may take."""
        return Limits(seconds=self.seconds, memory_mb=self.memory_mb, collected_kb=1024)

    @property
    def forgeable(self) -> bool:
        """Whether a submission can forge its verdict."""
        return self.grader == Grader.IN_PROCESS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sandbox not in NAMES:
            raise SettingsError(f"code: unknown sandbox {self.sandbox!r}: use {', '.join(NAMES)}")
        check_ranges(
            self,
            SettingsError,
            "code: ",
            turns=(1, self.max_turns),
            max_turns=(1, 10_000),
            window=(1, 10_000),
            echo=(0, 1000),
            output_tokens=(20, 1_000_000),
            files=(1, 1000),
            file_kb=(1, 1024),
            seconds=(0.1, 10),
            case_seconds=(0.02, 10),
        )
        check_share(self, SettingsError, "code: ", "skill")
        if self.bash and self.sandbox not in _WITH_BASH:
            raise SettingsError(f"code: bash needs --code.sandbox {' or '.join(_WITH_BASH)}, not {self.sandbox}")
        try:
            _ = self.limits
        except ValueError as error:
            raise SettingsError(f"code: {error}") from None
