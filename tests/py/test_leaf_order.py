"""The order in which leaves get their gradients, and their hooks are called: DistributedDataParallel's buckets are
filled in it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl

MODULES = {
    "linear": (lambda: nn.Linear(3, 4), (2, 3)),
    "linear, no bias": (lambda: nn.Linear(3, 4, bias=False), (2, 3)),
    "linear of a vector": (lambda: nn.Linear(3, 4), (3,)),
    "linear of a vector, no bias": (lambda: nn.Linear(3, 4, bias=False), (3,)),
    "linear, 3 dimensions": (lambda: nn.Linear(3, 4), (2, 5, 3)),
    "linear, 3 dimensions, no bias": (lambda: nn.Linear(3, 4, bias=False), (2, 5, 3)),
    "linear, 4 dimensions": (lambda: nn.Linear(3, 4), (2, 2, 5, 3)),
    "linear, 4 dimensions, no bias": (lambda: nn.Linear(3, 4, bias=False), (2, 2, 5, 3)),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3, padding=1), (2, 3, 5)),
    "conv1d, no bias": (lambda: nn.Conv1d(3, 4, 3, bias=False), (2, 3, 5)),
    "conv1d, same": (lambda: nn.Conv1d(3, 4, 3, padding="same"), (2, 3, 5)),
    "conv1d, circular": (lambda: nn.Conv1d(3, 4, 3, padding=1, padding_mode="circular"), (2, 3, 5)),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3), (2, 3, 5, 5)),
    "conv2d, groups": (lambda: nn.Conv2d(4, 4, 3, groups=2), (2, 4, 5, 5)),
    "transposed 1d": (lambda: nn.ConvTranspose1d(3, 4, 3), (2, 3, 5)),
    "transposed 2d": (lambda: nn.ConvTranspose2d(3, 4, 3), (2, 3, 5, 5)),
    "conv3d": (lambda: nn.Conv3d(3, 4, 2), (2, 3, 3, 3, 3)),
    "batch_norm": (lambda: nn.BatchNorm1d(3), (4, 3)),
    "layer_norm": (lambda: nn.LayerNorm(3), (4, 3)),
    "group_norm": (lambda: nn.GroupNorm(1, 3), (4, 3)),
    "rms_norm": (lambda: nn.RMSNorm(3), (4, 3)),
    "instance_norm": (lambda: nn.InstanceNorm1d(3, affine=True), (2, 3, 4)),
    "prelu": (lambda: nn.PReLU(3), (2, 3)),
    "lstm": (lambda: nn.LSTM(3, 4), (2, 2, 3)),
    "lstm, no biases": (lambda: nn.LSTM(3, 4, bias=False), (2, 2, 3)),
    "lstm, batch first": (lambda: nn.LSTM(3, 4, batch_first=True), (2, 2, 3)),
    "lstm, two ways": (lambda: nn.LSTM(3, 4, bidirectional=True), (2, 2, 3)),
    "lstm, double": (lambda: nn.LSTM(3, 4, dtype=torch.float64), (2, 2, 3)),
    "gru": (lambda: nn.GRU(3, 4), (2, 2, 3)),
    "gru, two layers": (lambda: nn.GRU(3, 4, num_layers=2, batch_first=True), (2, 2, 3)),
    "gru, two ways": (lambda: nn.GRU(3, 4, bidirectional=True), (2, 2, 3)),
    "rnn": (lambda: nn.RNN(3, 4), (2, 2, 3)),
    "rnn, no biases": (lambda: nn.RNN(3, 4, bias=False), (2, 2, 3)),
    "gru cell": (lambda: nn.GRUCell(3, 4), (2, 3)),
    "lstm cell": (lambda: nn.LSTMCell(3, 4), (2, 3)),
    "transformer layer": (lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), (2, 3, 4)),
}


def run(module, function, x, hooks):
    log = []
    if x.requires_grad:
        x.register_hook(lambda g: log.append("x"))
    for name, p in module.named_parameters():
        add = p.register_hook if hooks == "hook" else p.register_post_accumulate_grad_hook
        add(lambda g, name=name: log.append(name))
    function(x).square().mean().backward()
    return log


def whole(y):
    return y[0] if isinstance(y, tuple) else y


USES = {
    "alone": lambda module: lambda x: whole(module(x)),
    "relu behind": lambda module: lambda x: whole(module(x)).relu(),
    "tanh before": lambda module: lambda x: whole(module(x.tanh())),
    "twice": lambda module: lambda x: whole(module(x)) + whole(module(x * 2)),
    "turned": lambda module: lambda x: whole(module(x.mT.contiguous().mT if x.dim() > 1 else x)),
}


@pytest.mark.parametrize("leaf", (False, True), ids=("data", "leaf"))
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", MODULES)
def test_order_of_a_module(name, use, leaf):
    make, shape = MODULES[name]
    logs = []
    for accelerated in (False, True):
        torch.manual_seed(3)
        module = make()
        x = torch.randn(*shape, dtype=next(module.parameters()).dtype, requires_grad=leaf)
        function = USES[use](module)
        logs.append(run(module, dycl.accelerate(function) if accelerated else function, x, "hook" if leaf else "post"))
    assert logs[0] == logs[1]


def nets():
    return {
        "convolutions": nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), nn.Conv1d(4, 2, 2)),
        "transposed": nn.Sequential(nn.ConvTranspose1d(3, 4, 3), nn.Tanh(), nn.ConvTranspose1d(4, 2, 2)),
        "products": nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.RMSNorm(4), nn.Linear(4, 2)),
        "norms": nn.Sequential(nn.Linear(6, 3), nn.LayerNorm(3), nn.PReLU(), nn.Linear(3, 3, bias=False)),
    }


@pytest.mark.parametrize("name", nets())
def test_order_of_a_network(name):
    logs = []
    for accelerated in (False, True):
        torch.manual_seed(3)
        module = nets()[name]
        x = torch.randn(2, 3, 6, requires_grad=True)
        logs.append(run(module, dycl.accelerate(module) if accelerated else module, x, "hook"))
    assert logs[0] == logs[1]


def test_views_of_the_program_are_nodes():
    """A weight that the program itself turned or split gets its gradient behind those nodes."""

    def function(x, weight, bias, stacked):
        y = F.conv2d(x.unsqueeze(2), weight.unsqueeze(2), bias).squeeze(2)
        q, k = stacked.chunk(2)
        return F.linear(y, q) * F.linear(y, k)

    logs = []
    for f in (function, dycl.accelerate(function)):
        torch.manual_seed(3)
        shapes = {"x": (2, 3, 6), "weight": (4, 3, 3), "bias": (4,), "stacked": (4, 4)}
        leaves = {name: torch.randn(*shape, requires_grad=True) for name, shape in shapes.items()}
        log = []
        for name, leaf in leaves.items():
            leaf.register_hook(lambda g, name=name: log.append(name))
        f(*leaves.values()).sum().backward()
        logs.append(log)
    assert logs[0] == logs[1]
