"""What every generated training begins with; its source stands at the top of the scripts that are printed for
failures."""

import contextlib
import copy  # noqa: F401 (programs use what is imported here)
import io

import numpy as np  # noqa: F401
import torch
import torch.nn.functional as F  # noqa: F401
import torch.nn.utils.prune
from torch import nn  # noqa: F401
from torch.nn.utils import parametrizations  # noqa: F401
from torch.optim import lr_scheduler  # noqa: F401
from torch.utils.checkpoint import checkpoint  # noqa: F401

from tests.fuzz.programs.prelude import make  # noqa: F401


class World:
    """What the program works on, and what it noted. It is asked as a module is (state_dict, named_parameters, double)
    for all that is compared after a step."""

    def __init__(self):
        self.net = self.criterion = self.average = self.optimizer = self.scheduler = None
        self.log, self.kept, self.before, self.losses, self.last, self.state = [], [], [], [], None, None
        self.call, self.holds = 0, False

    def begin(self):
        """A new step."""
        self.call += 1
        self.log, self.kept = [], []
        self.before = [p.grad for p in self.net.parameters()] if self.holds else []

    def note(self, what, *things):
        """What tensors tell about themselves, and their values; None and other things as they are."""
        for x in things:
            if isinstance(x, (tuple, list)):
                self.note(what, *x)
            elif isinstance(x, torch.Tensor):
                node = x.grad_fn.name().split("::")[-1] if x.grad_fn is not None else None
                told = (tuple(x.shape), x.stride(), x.dtype, x._version, x._is_view(), x.requires_grad, x.is_leaf, node)
                self.log.append((what, {"noted": told}, x.detach().clone()))
            else:
                self.log.append((what, x))

    def flow(self, what, *gradients):
        """Gradients on their way: how they lie, and what else shares their memory, is each formula's own affair."""
        for x in gradients:
            told = x if x is None else (tuple(x.shape), x.dtype, x.requires_grad)
            self.log.append((what, {"noted": told}, None if x is None else x.detach().to_dense().clone(
                memory_format=torch.contiguous_format)))

    def modules(self):
        return [m for m in (self.net, self.criterion, self.average) if isinstance(m, nn.Module)]

    def named_parameters(self):
        return [(f"{i}.{name}", p) for i, m in enumerate(self.modules()) for name, p in m.named_parameters()]

    def double(self):
        for m in self.modules():
            m.double()
        return self

    def state_dict(self):
        """All that is compared, by name."""
        parameters, buffers = dict(self.named_parameters()), {}
        for i, m in enumerate(self.modules()):
            buffers |= {f"{i}.{name}": b for name, b in m.named_buffers()}
        learned, optimizer = list(self.net.parameters()), self.optimizer
        state = [{str(k): v for k, v in optimizer.state[p].items()} if p in optimizer.state else None for p in learned]
        groups = [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
        schedule = None if self.scheduler is None else plain(self.scheduler.state_dict())
        versions = [x._version for x in (*parameters.values(), *buffers.values())]
        flags = [([x.training for x in m.modules()], [p.requires_grad for p in m.parameters()]) for m in self.modules()]
        same = [p.grad is g for p, g in zip(learned, self.before)]
        layouts = [None if p.grad is None else (p.grad.dtype, str(p.grad.layout), p.grad.requires_grad)
                   for p in parameters.values()]
        return {"parameters": parameters, "buffers": buffers, "optimizer": state, "groups": groups, "log": self.log,
                "schedule": schedule, "kept": [self.kept, self.losses], "noted": [versions, flags, same, layouts]}


def plain(x):
    """Numbers and texts of what a scheduler keeps."""
    if isinstance(x, dict):
        return {str(k): plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    return x if isinstance(x, (int, float, str, bool, torch.Tensor)) or x is None else type(x).__name__


def everywhere(accelerate):
    """Where all outermost calls of modules are accelerated, if anything is."""
    import dycl

    return dycl.accelerate_all() if accelerate is dycl.accelerate else contextlib.nullcontext()


def saved(module):
    """A state as it comes back from a file."""
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    return torch.load(file)


class Scaled(torch.autograd.Function):
    """Another gradient than the derivative."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor * 0.5, None


class Squared(torch.autograd.Function):
    """Keeps what it reads."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * 0.5

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * x


class Straight(torch.autograd.Function):
    """Rounds forwards only, in the newer style."""

    @staticmethod
    def forward(x):
        return (x * 4).round() / 4

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g.clone()


class Written(torch.autograd.Function):
    """Writes what it is given."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(0.75)

    @staticmethod
    def backward(ctx, g):
        return g * 0.75


class Symmetric(nn.Module):
    """A parametrization of square and other weights."""

    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2) if w.shape[-1] == w.shape[-2] else w * 0.9


class Gate(nn.Module):
    """Plain parameters and a buffer that it writes."""

    def __init__(self, n):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.full((n,), 0.9)), nn.Parameter(torch.zeros(n))
        self.register_buffer("seen", torch.zeros(n))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.seen.mul_(0.9).add_(x.detach().reshape(-1, x.shape[-1]).mean(0), alpha=0.1)
        return x * self.scale + self.shift - self.seen


class Choice(nn.Module):
    """Experts, one of which a row takes."""

    def __init__(self, n, experts):
        super().__init__()
        self.gate, self.experts = nn.Linear(n, experts), nn.ModuleList(nn.Linear(n, n) for _ in range(experts))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        weights, chosen = self.gate(rows).softmax(-1).max(-1)
        result = torch.zeros_like(rows)
        for i, expert in enumerate(self.experts):
            places = (chosen == i).nonzero().squeeze(1)
            if len(places):
                result = result.index_add(0, places, expert(rows[places]) * weights[places, None])
        return result.view_as(x)


class Stack(nn.Module):
    """A list of parameters."""

    def __init__(self, n, count):
        super().__init__()
        self.weights = nn.ParameterList(torch.eye(n) * 0.8 + 0.02 * k for k in range(count))

    def forward(self, x):
        for w in self.weights:
            x = x @ w
        return x


class Tied(nn.Module):
    """One weight twice."""

    def __init__(self, n, m):
        super().__init__()
        self.down, self.up = nn.Linear(n, m), nn.Linear(m, n, bias=False)
        self.up.weight = nn.Parameter(self.down.weight.detach().t().clone())
        self.back = nn.Linear(n, m)
        self.back.weight = self.down.weight

    def forward(self, x):
        return self.up(self.down(x).tanh() + self.back(x))


def carried(w, layer, x):
    """A recurrent layer that begins where the last batch of this size ended."""
    state = None
    if w.state is not None and w.state[0].shape[1] == len(x):
        state = w.state if isinstance(layer, nn.LSTM) else w.state[0]
    y, state = layer(x, state)
    w.state = tuple(s.detach() for s in state) if isinstance(state, tuple) else (state.detach(),)
    return y


def packed(layer, x):
    """Sequences of several lengths."""
    lengths = torch.tensor([1 + (3 * k) % x.shape[1] for k in range(len(x))])
    parts = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return nn.utils.rnn.pad_packed_sequence(layer(parts)[0], batch_first=True, total_length=x.shape[1])[0]


def unrolled(cell, x):
    """The last state of a cell that goes over a sequence."""
    h = None
    for part in x.unbind(1):
        h = cell(part, h)
    return h
