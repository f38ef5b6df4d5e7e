"""Environments for verifiers 0.4 (extra `verifiers`): a taskset, the environment that plays it, and a harness.

    from runners.interop.for_verifiers import load_environment

    env = load_environment("wiki", split="test")

verifiers' own programs find them as the taskset `turnwise-verifiers`. The environment is the user of the conversation:
a message of the model is its turn, and the observation is the next message to it. Episodes are played in this process.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.dialects.chat import message_to_wire

from agent_envs import registry
from agent_envs.core import TextEnv, check_split
from runners.interop.episodes import Episodes

TASKSET = "turnwise-verifiers"


class TurnwiseConfig(vf.TasksetConfig):
    """Which environment, and which of its tasks."""

    env: str = "wiki"
    """Name of the environment."""
    split: str = "train"
    """train, valid or test."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the environment, as `gymnasium.make` takes them."""
    seed: int = 0
    """Added to the number of a task, it is the seed of its episodes."""


class TurnwiseData(vf.TaskData):
    """A task, and all that an episode of it is made from."""

    env: str
    settings: dict[str, Any]
    seed: int


class TurnwiseTask(vf.Task[TurnwiseData, vf.State, vf.TaskConfig]):
    """A task; `TurnwiseEnv` scores it."""


class TurnwiseTaskset(vf.Taskset[TurnwiseTask, TurnwiseConfig]):
    """The tasks of a split, in their order; ``task.data.id`` is the environment's own id."""

    def load(self) -> Iterator[TurnwiseTask]:
        """Raises SettingsError."""
        config = self.config
        check_split(config.env, config.split)
        env = _made(config.env, config.settings)
        env.prepare()
        for number, task in enumerate(env.tasks(config.split)):
            env.reset(seed=config.seed + number, options={"task": task})
            data = TurnwiseData(
                id=task.id, name=task.id, prompt=task.prompt, system_prompt=env.system_prompt(),
                env=config.env, settings=config.settings, seed=config.seed + number,
            )  # fmt: skip
            yield TurnwiseTask(data, config.task)


class TurnwiseEnvConfig(vf.EnvConfig):
    """The one seat, on this machine: the harness below runs no program of the model's."""

    player: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class TurnwiseEnv(vf.Env[TurnwiseEnvConfig]):
    """Plays an episode and records its reward, its success, and how many turns could not be carried out."""

    async def run(self, task: TurnwiseTask, agents: vf.Agents) -> None:
        """What a broken environment raises fails the episode: verifiers counts it as an error, not as a reward."""
        data, invalid = task.data, 0
        episodes = Episodes(_made(data.env, data.settings))
        try:
            await asyncio.to_thread(episodes.begin, data.id, seed=data.seed)
            async with agents.player.interaction(task) as talk:
                segment = await talk.turn()
                while not segment.terminated:
                    turn = await asyncio.to_thread(episodes.message, _reply(segment))
                    invalid += turn.invalid
                    if turn.over:
                        break
                    segment = await talk.turn(turn.text)
        finally:
            episodes.env.close()
        talk.trace.record_reward("reward", episodes.total)
        talk.trace.record_metrics({"success": bool(episodes.success), "turns": episodes.turns, "invalid": invalid})


class TurnwiseHarness(vf.Harness[vf.HarnessConfig]):
    """Asks the model for one message, from this process: no program is started, and nothing is installed."""

    APPENDS_SYSTEM_PROMPT, SUPPORTS_RESUME, EXECUTES_CODE, NEEDS_CONTAINER = True, True, False, False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """The reply is in the trace, since verifiers' own endpoint records it; a refusal is the result's status."""
        system, prompt = self.resolve_prompt(data)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        messages += [{"role": "user", "content": prompt}] if isinstance(prompt, str) else map(message_to_wire, prompt)
        async with httpx.AsyncClient(timeout=None) as client:  # the seat has a time limit of its own
            answer = await client.post(
                f"{endpoint}/chat/completions",
                json={"model": ctx.model, "messages": messages},
                headers={"Authorization": f"Bearer {secret}"},
            )
        return vf.ProgramResult(
            exit_code=int(answer.is_error), stdout="", stderr=answer.text if answer.is_error else ""
        )


def load_environment(env: str, split: str = "train", *, seed: int = 0, **settings: Any) -> TurnwiseEnv:
    """The environment as verifiers runs it, with its ``taskset``. Raises SettingsError where it cannot be made."""
    _made(env, settings).close()
    check_split(env, split)
    taskset = {"id": TASKSET, "env": env, "split": split, "settings": settings, "seed": seed}
    return vf.load_environment(vf.resolve_env_config({"taskset": taskset}))


def _made(env: str, settings: dict[str, Any]) -> TextEnv:
    return registry.from_settings(env, **settings)


def _reply(segment: vf.Segment) -> str:
    """The model's message as it was written: `Segment.last_reply` strips it."""
    said = [message.content for message in segment.messages if message.role == "assistant"]
    return (said[-1] if said else "") or ""
