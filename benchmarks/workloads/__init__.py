"""What is measured: models, the inputs they are called with in turn, and what dycl is meant to reach.

Everything is made from random configurations with fixed seeds, so that every process builds the same model and the
same inputs. The input sets of the models with data-dependent control flow take different paths; a peer that traced one
of them gives a wrong result on another and is shown as wrong.
"""

import torch

from . import generation, no_gain, skipnet, small, transformer
from .workload import INPUTS, Workload  # noqa: F401

SEED = 20240917
WORKLOADS = small.WORKLOADS + skipnet.WORKLOADS + transformer.WORKLOADS + generation.WORKLOADS + no_gain.WORKLOADS
BY_NAME = {workload.name: workload for workload in WORKLOADS}
NO_SLOWER = 0.97  # the goal where none is named: within the noise of eager


def build(name, saved=None):
    """The model in eval mode and the inputs of a workload, the same in every process.

    Where saved names a file, what calibrate() found is read from it, and nothing of the model has run in this process.
    """
    torch.manual_seed(SEED)
    model, inputs = BY_NAME[name].build()
    model.eval()
    if BY_NAME[name].calibrate:
        if saved:
            found = torch.load(saved)
            model.load_state_dict(found["state"])
            inputs = found["inputs"]
        else:
            inputs = BY_NAME[name].calibrate(model)
    return model, inputs


def save_calibrated(name, path):
    model, inputs = build(name)
    torch.save({"state": model.state_dict(), "inputs": inputs}, path)
