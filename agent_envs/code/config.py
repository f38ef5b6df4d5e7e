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
    """Where programs run: auto, namespace, landlock, docker, or unsafe-process, which isolates nothing."""
    turns: int = 16
    """Turns for the whole task; after the last one the files are judged as they are."""
    max_turns: int = 40
    """Largest value that `turns` may have."""
    window: int = 40
    """Most lines of a file shown at once."""
    echo: int = 1
    """Lines shown around those that an edit changed."""
    output_tokens: int = 400
    """Most words and signs shown of a program's output, or of an answer's rows; longer output loses its middle."""
    bash: bool = False
    """Also offer BASH(command); with sandbox namespace or docker only."""
    seconds: float = 5.0
    """Time that one program may run."""
    case_seconds: float = 0.25
    """Processor time of one check; a check that waits is ended after ten times as long."""
    memory_mb: int = 256
    """Memory of a program in MiB."""
    files: int = 32
    """Largest number of files."""
    file_kb: int = 64
    """Largest size of a file in KiB."""
    skill: float = 0.8
    """Skill of the oracle's agent: the chance that it makes the expert's next turn; its other turns change nothing."""

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
            memory_mb=96,  # what the judge's own limits need
        )
        check_share(self, SettingsError, "code: ", "skill")
        if self.bash and self.sandbox not in _WITH_BASH:
            raise SettingsError(f"code: bash needs --code.sandbox {' or '.join(_WITH_BASH)}, not {self.sandbox}")
        try:
            _ = self.limits
        except ValueError as error:
            raise SettingsError(f"code: {error}") from None
