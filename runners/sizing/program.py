"""What ``turnwise doctor --model`` does: the estimate of a run, against a machine."""

import torch

from agents.text.errors import ModelError
from runners.command_line.errors import UserError
from runners.command_line.plain import dump_json
from runners.loading.base_model import device_of
from runners.settings.pretrained import base_of
from runners.settings.run_settings import RunSettings
from runners.sizing.footprint import config_of, footprint
from runners.sizing.machines import Machine, gpu_of, this_machine
from runners.sizing.table import figures, lines


def show(settings: RunSettings, *, gpu: str, as_json: bool) -> None:
    """Prints what a run with these settings takes on the GPU that is named, or on this machine. Raises UserError."""
    train = settings.train
    if (source := base_of(train.model, train.init_from)) is None:
        raise UserError("--model tiny fits any machine that runs Python: name another model")
    machine = gpu_of(gpu) if gpu else this_machine()
    if not gpu and device_of(train.device).type == "cuda":
        card = torch.cuda.get_device_properties(device_of(train.device))
        machine = Machine(card.name, card.total_memory, gpu=True)
    try:
        found = footprint(settings, config_of(source), gpu=machine.gpu)
    except ModelError as error:
        raise UserError(str(error)) from None
    if as_json:
        print(dump_json(figures(found, machine, settings)), end="")
        return
    for line in lines(found, machine, settings):
        print(line)
