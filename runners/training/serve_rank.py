"""``python -m runners.training.serve_rank``: a rank of the learner beside the first one; `ranks` starts it."""

import json
import pickle
import traceback
from contextlib import suppress

from agent_envs.core import SettingsError
from agent_envs.isolation.child import Channel, connect
from agents.model.sharded_weights import shard
from agents.text.errors import ChatError, ModelError
from agents.tree.merge import grow
from runners.command_line.errors import UserError
from runners.loading.base_model import actor_of, load_base
from runners.run_folder.checkpoint import STATE
from runners.settings.learner_ranks import FSDP
from runners.training.generators import seed_all
from runners.training.learner import Learner
from runners.training.ranks import RankSetup, fingerprint
from runners.training.threads import compute_in_threads


def serve(channel: Channel) -> None:
    """Learns what rank 0 learns, until that is gone."""
    setup: RankSetup = pickle.loads(channel.recv_bytes())
    train = setup.settings.train
    compute_in_threads(train)
    seed_all(train.seed)
    channel.send_bytes(b"joining")
    ranks = setup.join()
    try:
        base = load_base(setup.base)
        model, prompt = actor_of(base, setup.settings)
        learner = Learner(model, setup.settings.algorithm, prompt, train, ranks)
        if train.ranks.kind == FSDP:
            shard(model)
        if setup.checkpoint is not None:
            state = json.loads((setup.checkpoint / STATE).read_text("utf-8"))
            learner.load(setup.checkpoint, state["learner"])
    except (UserError, SettingsError, ModelError, ChatError, ValueError) as error:
        channel.send_bytes(pickle.dumps(("refused", str(error))))
        return
    channel.send_bytes(pickle.dumps(("ready", "")))
    with suppress(UserError, ModelError):  # rank 0 has come to the same, and says so
        while True:
            update, episodes, used = pickle.loads(channel.recv_bytes())
            learner.learn(update, grow(episodes), used)
            ranks.agree(fingerprint(model))


if __name__ == "__main__":
    try:
        serve(connect())
    except EOFError:
        pass
    except Exception:
        traceback.print_exc()  # rank 0 keeps the last lines of what is printed here
        raise SystemExit(1) from None
