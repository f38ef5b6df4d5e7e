"""One rollout worker: an engine, a chat and environments. Both backends run this class."""

from collections.abc import Callable
from functools import partial

from peft import PeftModel
from safetensors.torch import load as parse
from transformers import PreTrainedModel

from agent_envs import registry
from agent_envs.core import PlayableEnv, TextEnv
from agent_envs.isolation.hosts import EnvHosts
from agents.engine.base import need
from agents.engine.registry import Opening
from agents.model.adapter_io import split
from agents.model.state_values import Critic
from agents.rollout.play import Played, rollout
from agents.rollout.search.scorers import Scorer, scorer_of
from agents.rollout.search.settings import SearchPlan
from agents.rollout.slot import close_all
from agents.text.chat import Chat
from runners.command_line.blame import blamed
from runners.settings.play_settings import PlaySettings as PlaySettings
from runners.settings.play_settings import job_env
from runners.workers.base import BASE_MODEL, PlaySpec, StaleWorker, check_sum


class Worker:
    """Plays portions, one at a time."""

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        chat: Chat,
        settings: PlaySettings,
        source: str,
        critic: Critic | None = None,
        merged: bool = False,
    ) -> None:
        self.settings, self.chat, self.critic = settings, chat, critic
        self.player = settings.agent.player()
        self.version: int | None = None
        self.spare: dict[str, list[PlayableEnv]] = {}
        """Environments between two portions, by name."""
        self.hosts = {
            job_env(name, settings.envs): EnvHosts(partial(registry.env_class(name), config), settings.hosts)
            for name, config in settings.envs.items()
        }
        length = settings.react.max_tokens
        try:
            for hosts in self.hosts.values():
                hosts.start()
            self.engine = settings.engine.open(
                Opening(model, source, chat.stop_ids, length, settings.slots, model.device, merged=merged)
            )
            if settings.exact:
                need(self.engine, "reproducible", "--exact")
            # Here there is no deadline yet.
            for name, config in settings.envs.items():
                with blamed(name, "to prepare"):
                    registry.make(name, config).prepare()
        except BaseException:
            self.close()
            raise

    def add_env(self, name: str, make: Callable[[], TextEnv]) -> None:
        """Plays another environment, too: that of jobs that call it ``name`` (`Job.env`). ``make`` is pickled."""
        self.hosts[name] = EnvHosts(make, self.settings.hosts)

    def load(self, version: int, adapter: bytes, sha256: str) -> None:
        """Raises ValueError when the bytes have another hash; the policy is then as before.

        A critic is loaded where its value head is among the bytes; otherwise its owner sees to it.
        """
        check_sum(adapter, sha256)
        whole = {} if adapter == BASE_MODEL else parse(adapter)
        policy = split(whole)[0]
        self.engine.load(version, policy or None)
        if self.critic is not None and len(policy) < len(whole):
            self.critic.model.load_state(whole)
        self.version = version

    def play(self, spec: PlaySpec, version: int, on_end: Callable[[], None] | None = None) -> Played:
        """Raises StaleWorker when the loaded policy is another one."""
        if self.version != version:
            raise StaleWorker(f"policy {version} was asked for, and the worker has {self.version}")
        self.engine.sampling = spec.sampling
        return rollout(
            {name: hosts.make for name, hosts in self.hosts.items()},
            self.engine,
            self.chat,
            spec.jobs,
            self.settings.react,
            player=self.player,
            plan=spec.plan,
            search=spec.search,
            scorer=self.scorer(spec.search),
            quota=spec.quota,
            faults=self.settings.faults,
            exact=self.settings.exact,
            on_episode=lambda _: on_end() if on_end else None,
            spare=self.spare,
        )

    def scorer(self, search: SearchPlan | None) -> Scorer | None:
        """What leads a search; None where it has no choice."""
        return scorer_of(search.scoring, self.critic) if search and search.tot.branch > 1 else None

    def close(self) -> None:
        for envs in self.spare.values():
            close_all(envs)
        for hosts in self.hosts.values():
            hosts.close()
