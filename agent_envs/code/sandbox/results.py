"""Jobs as the zygote reads them, and results as it writes them.

Invariant: a result is believed only in the shape it must have; anything else is a fault of the sandbox.
"""

from __future__ import annotations

from typing import Any

from agent_envs.code.sandbox.interface import Capabilities, RunResult, SandboxFault, SandboxJob, Status
from agent_envs.code.sandbox.zygote import wire

_MB, _KB = 1 << 20, 1 << 10


def message_of(job: SandboxJob, capabilities: Capabilities) -> bytes:
    """The job, with the limits in force."""
    limits = job.limits
    bounds = {
        "seconds": limits.seconds,
        "memory": limits.memory_mb * _MB,
        "processes": capabilities.processes_for(limits),
        "disk": limits.disk_mb * _MB,
        "inodes": limits.inodes,
        "output": limits.output_kb * _KB,
        "collected": limits.collected_kb * _KB,
        "open_files": limits.open_files,
    }
    header = {"argv": list(job.argv), "names": list(job.files), "bounds": bounds}
    return wire.pack(header, [job.stdin, *job.files.values()])


def most_bytes(job: SandboxJob) -> int:
    """No result of the job is longer."""
    given = sum(map(len, job.files)) * 12  # a character may take 12 bytes of JSON
    return 2 * job.limits.output_kb * _KB + job.limits.collected_kb * _KB + given + 16 * _MB


def result_of(body: bytes, job: SandboxJob) -> RunResult:
    """Raises SandboxFault for a fault and for anything that is not a result."""
    try:
        header, blobs = wire.unpack(body)
        if "fault" in header:
            raise SandboxFault(f"the sandbox failed: {header['fault']}")
        if "oom" in header:  # the memory of the run was spent so that not even its supervisor could stay
            return out_of_memory()
        return _read(header, blobs, job)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise SandboxFault(f"the sandbox answered something that is not a result: {type(error).__name__}") from error


def out_of_memory() -> RunResult:
    """Of a run that took its supervisor with it."""
    return RunResult(Status.OOM, None, 9, b"", b"", True, 0.0, 0.0, None, stray=True)


def _read(header: dict[str, Any], blobs: list[bytes], job: SandboxJob) -> RunResult:
    events = header["events"]
    return RunResult(
        status=_status(header),
        exit_code=header["exit_code"],
        signal=header["signal"],
        stdout=blobs[0],
        stderr=blobs[1],
        truncated=bool(header["flooded"]),
        wall=float(header["wall"]),
        cpu=float(header["cpu"]),
        memory=int(header["rss"] if events["peak"] is None else events["peak"]),
        files=dict(zip(header["names"], blobs[2:], strict=True)),
        deleted=tuple(header["deleted"]),
        skipped=tuple(header["skipped"]),
        stray=bool(header["stray"]),
    )


def _status(header: dict[str, Any]) -> Status:
    if header["timeout"]:
        return Status.TIMEOUT
    if header["flooded"]:
        return Status.OUTPUT_LIMIT
    if header["exit_code"] == 0:
        return Status.OK
    if header["events"]["oom"] > 0:
        return Status.OOM
    if header["events"]["refused"] > 0:
        return Status.PIDS_LIMIT
    return Status.ERROR
