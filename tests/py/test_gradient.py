"""Without the recording of what needs gradients (DYCL_TRAIN=0): calls that need gradients that entry cannot tell:
functions whose closures or globals hold the parameters, modules that are frozen in part.
The region steps aside at the first operator that meets such a tensor, and a site that trains is left alone from then
on."""

import ast
import os
import sys

import pytest
import torch
import torch.nn.functional as F
from same import Programs, same
from suite import without_training  # noqa: F401 (a fixture)
from torch import nn
from torch.overrides import TorchFunctionMode

import dycl
import started

program = Programs()


pytestmark = pytest.mark.usefixtures("without_training")


def network(**options):
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(**options), nn.Linear(8, 3))


def batch():
    return torch.randn(5, 6), torch.randint(0, 3, (5,))


# ---- Steps of training whose arguments do not require gradients. The model is made inside of the arguments' function,
# so both sides start the same.


def trained(step, optimiser=None, frozen=0):
    """A case: `step(model, optimiser, x, y)`, with a model that no argument shows."""
    optimiser = optimiser or (lambda parameters: torch.optim.SGD(parameters, lr=0.1))

    def make():
        model = network(p=0.25)
        for p in list(model.parameters())[:frozen]:
            p.requires_grad_(False)
        made = optimiser([p for p in model.parameters() if p.requires_grad])
        holder.append((model, made))
        return batch()

    def program(x, y):
        model, made = holder[-1]
        result = step(model, made, x, y)
        return result, [p.detach().clone() for p in model.parameters()], [p.grad for p in model.parameters()]

    holder = []
    return program, make


def plain_step(model, optimiser, x, y):
    x = (x - 0.5) / 0.25
    optimiser.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimiser.step()
    return loss.item()


def accumulating(model, optimiser, x, y):
    for part in (slice(0, 2), slice(2, 5)):
        (F.cross_entropy(model(x[part] * 2), y[part]) / 2).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimiser.step()
    optimiser.zero_grad(set_to_none=False)
    return norm


def double_backward(model, optimiser, x, y):
    points = (x + 0.1).requires_grad_()
    out = model(points).sum()
    slope, = torch.autograd.grad(out, points, create_graph=True)
    loss = ((slope.norm(dim=1) - 1) ** 2).mean()
    loss.backward()
    optimiser.step()
    return loss, slope


def metrics_afterwards(model, optimiser, x, y):
    loss = plain_step(model, optimiser, x, y)
    with torch.no_grad():
        logits = model.eval()(x)
        right = (logits.argmax(-1) == y).float().mean()
        model.train()
    return loss, right, logits


def features_first(model, optimiser, x, y):
    with torch.no_grad():
        features = torch.stack([x.roll(i, 1) * (i + 1) for i in range(8)]).softmax(-1).mean(0)
    return plain_step(model, optimiser, features + x.abs(), y)


def closure_of_the_optimiser(model, optimiser, x, y):
    def closure():
        optimiser.zero_grad()
        loss = F.mse_loss(model(x * 1.5), F.one_hot(y, 3).float())
        loss.backward()
        return loss

    return optimiser.step(closure)


def functional_call(model, optimiser, x, y):
    parameters = {name: p * 1.0 for name, p in model.named_parameters()}
    loss = torch.func.functional_call(model, parameters, (x,)).square().sum()
    loss.backward()
    return loss


def resized_first(model, optimiser, x, y):
    """The first operator that meets a gradient is one that torch hands over as a whole, in the midst of its own
    call."""
    h = F.interpolate(next(model.parameters())[None, None], scale_factor=2.0).mean() + (x * 2).sum()
    h.backward()
    return h


def raising(model, optimiser, x, y):
    h = model(x + 1)
    if float(h.sum()) != 0:
        raise ValueError("after the region stepped aside")


STEPS = {
    "sgd": trained(plain_step),
    "adamw": trained(plain_step, lambda p: torch.optim.AdamW(p, 1e-2)),
    "fused adam": trained(plain_step, lambda p: torch.optim.Adam(p, 1e-2, fused=True)),
    "foreach": trained(plain_step, lambda p: torch.optim.RMSprop(p, 1e-2, foreach=True)),
    "lbfgs": trained(closure_of_the_optimiser, lambda p: torch.optim.LBFGS(p, max_iter=3)),
    "frozen in part": trained(plain_step, frozen=2),
    "accumulating": trained(accumulating),
    "double backward": trained(double_backward),
    "metrics afterwards": trained(metrics_afterwards),
    "features first": trained(features_first),
    "functional call": trained(functional_call),
    "resized first": trained(resized_first),
    "raising": trained(raising),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_training(name):
    stats = same(*STEPS[name], calls=6, grad=True, like="matmul", recorded=None)
    assert stats["calls"] + stats["plain_calls"] == 6, stats
    if name != "features first":
        assert stats["calls"] == 1 and stats["plain_grad"] == 5, stats  # once is enough to learn it


def test_one_operator_is_left_to_torch_then_the_rest_of_the_call_is_torchs():
    weights = [torch.randn(4, 4, requires_grad=True) for _ in range(8)]

    def program(x):
        h = x * 2
        for w in weights:
            h = torch.tanh(h @ w)
        return h

    stats = same(program, lambda: (torch.randn(3, 4),), calls=1, grad=True, like="matmul")
    assert stats["torch"] == stats["bails"]["grad"] == 1 and stats["recorded"] == 1 and stats["segments"] == 1, stats


def test_it_is_tried_again_more_and_more_rarely():
    weight = torch.randn(4, requires_grad=True)
    accelerated = dycl.accelerate(lambda x: (x + 1) * weight)
    for _ in range(100):
        accelerated(torch.ones(4))
    stats = dycl.stats(accelerated)
    assert stats["calls"] == 3 and stats["plain_grad"] == 97, stats  # after 16, 32 and 64 calls


def test_without_gradients_it_records_all_the_same():
    weight = torch.randn(4, requires_grad=True)

    def function(x):
        return (x + 1) * weight

    accelerated = dycl.accelerate(function)
    for _ in range(10):
        accelerated(torch.ones(4))
    with torch.no_grad():
        for _ in range(5):
            torch.testing.assert_close(accelerated(torch.ones(4)), function(torch.ones(4)))
    stats = dycl.stats(accelerated)
    assert stats["calls"] == 6 and stats["plain_grad"] == 9, stats


def test_parameters_that_are_frozen_later():
    weight = torch.randn(4, requires_grad=True)
    accelerated = dycl.accelerate(lambda x: (x + 1) * weight)
    accelerated(torch.ones(4))
    weight.requires_grad_(False)
    for _ in range(20):
        accelerated(torch.ones(4))
    stats = dycl.stats(accelerated)
    assert stats["calls"] == 5 and stats["torch"] == 1, stats  # sixteen calls later it is found out, and holds


def test_a_frozen_backbone_goes_on_being_recorded():
    backbone = nn.Sequential(*[layer for _ in range(12)
                               for layer in (nn.Linear(8, 8), nn.Tanh())]).requires_grad_(False)
    head = nn.Linear(8, 2)

    def function(x):
        return head(backbone(x)).sum()

    stats = same(function, lambda: (torch.randn(3, 8),), calls=5, grad=True, like="matmul")
    assert stats["calls"] == 5 and stats["recorded"] == 5 * 24 and stats["torch"] == 5, stats


class Seen(TorchFunctionMode):
    def __init__(self, names):
        super().__init__()
        self.names = names

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


@program(batch, grad=True)
def modes_of_the_program(x, y):
    """Entered before and after the region stepped aside; the second one is still on the stack when the call ends."""
    weight = nn.Parameter(torch.full((6,), 0.5))
    names = []
    h = x * 2
    with Seen(names):
        h = torch.add(h, 1)
        h = torch.mul(h, weight)
        h = torch.sin(h)
    with Seen(names):
        h = torch.cos(h)
    return h.detach(), [name for name in names if name != "__get__"]


@program(batch, grad=True)
def a_step_inside_of_a_mode_handler(x, y):
    """The operator that meets the gradient is called by torch's Python code, which torch hands to us in the midst of
    another."""
    weight = nn.Parameter(torch.ones(3, 2, 2))
    out = F.mse_loss(weight, torch.zeros(3, 2, 2)) + F.normalize(weight, dim=0).sum() + x.sum()
    out.backward()
    return out.detach(), weight.grad


@program(batch, grad=True)
def lazy_tensors_that_others_hold(x, y):
    """What was recorded before is plain afterwards, for everybody who holds it."""
    kept = {"a": x + 1, "views": (x * 2)[1:].unbind(0)}
    weight = nn.Parameter(torch.ones(6))
    out = (kept["a"] * weight).sum()
    types = [type(t) is torch.Tensor for t in (kept["a"], *kept["views"], out)]
    kept["a"].add_(1)  # after it was used: no backward pass here
    return kept, out.detach(), types


@pytest.mark.parametrize("function, make, options", program.cases)
def test_programs(function, make, options):
    same(function, make, recorded=None, **options)


# ---- The hint: programs of their own, since one backward pass anywhere in a process ends it


RUNNER = """
import logging, os, sys, warnings, torch, dycl
from torch import nn
bodies = eval(sys.stdin.read())
for name, body in bodies.items():  # a process each, without importing torch again
    sys.stderr.flush()
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(theirs, 2)
        code = 1
        try:
            exec(body, globals())
            code = 0
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        sys.stderr.flush()
        os._exit(code)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        text = pipe.read()
    print((name, os.waitpid(child, 0)[1], text))
"""


def said(bodies, *options):
    """What each of the programs writes to its standard error. None of them may fail."""
    done = started.run([*options, "-c", RUNNER], input=repr(bodies), timeout=300, env={**os.environ, "DYCL_TRAIN": "0"})
    assert done.returncode == 0, done.stderr
    rows = [ast.literal_eval(line) for line in done.stdout.splitlines()]
    assert [name for name, _, _ in rows] == list(bodies) and not any(code for _, code, _ in rows), rows
    return {name: text for name, _, text in rows}


FORGOTTEN = """
class Net(nn.Sequential): pass
def forget(calls=60, **options):
    model = dycl.accelerate(Net(nn.Linear(4, 4), nn.ReLU()).eval(), **options)
    for _ in range(calls):
        out = model(torch.ones(2, 4))
"""


FAILING = ("class Fails(logging.Handler):\n    def handle(self, record): raise RuntimeError('no')\n"
           "logging.getLogger('dycl').addHandler(Fails())\n")
OUTPUT = """
import dataclasses
@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    cache: list
class Net(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return {"dict": {"y": y}, "object": Output(y, [y + 1]), "numbers": y.tolist(), "none": None}[KIND]
model = dycl.accelerate(Net(4, 4).eval())
for _ in range(60):
    out = model(torch.ones(2, 4))
"""
HEARD = {  # how often
    "once": (FORGOTTEN + "forget()", 1),
    "once a model": (FORGOTTEN + "forget(); forget()", 2),
    "not at once": (FORGOTTEN + "forget(20)", 0),
    "silenced": (FORGOTTEN + "logging.getLogger('dycl').setLevel(logging.ERROR)\nforget()", 0),
    "a handler that fails": (FORGOTTEN + FAILING + "forget()", 0),
    **{kind: (f"KIND = {kind!r}" + OUTPUT, 1) for kind in ("dict", "object", "numbers", "none")},
    "every outermost module": ("handle = dycl.accelerate_all()\nclass Net(nn.Linear): pass\nmodel = Net(4, "
                               "4).eval()\nfor _ in range(60): y = model(torch.ones(2, 4))\n", 1),
}


@pytest.mark.parametrize("options", [(), ("-W", "error")], ids=["", "warnings are errors"])
def test_who_forgets_no_grad_hears_it_once(options):
    heard = said({name: body for name, (body, _) in HEARD.items()}, *options)
    for name, (_, times) in HEARD.items():
        assert heard[name].count("a Net ran in torch, because gradients are enabled") == heard[name].count("\n") \
            == times, (name, heard[name])


# Programs that use gradients, or may still: not a word.
TRAINS = {
    "training mode": "model = dycl.accelerate(nn.Linear(4, 4))\nfor _ in range(60): model(torch.ones(2, 4))",
    "evaluation mode, trained": """
model = dycl.accelerate(nn.Linear(4, 4).eval())
for _ in range(60):
    model(torch.ones(2, 4)).sum().backward()
""",
    "one pass behind many calls": """
model = dycl.accelerate(nn.Linear(4, 4).eval())
outs = [model(torch.ones(2, 4)) for _ in range(60)]
torch.stack(outs).sum().backward()
""",
    "only a part of the outputs is kept": """
class Net(nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return {"logits": y, "value": y.sum(-1), "many": list(y.unbind())}
model = dycl.accelerate(Net(4, 4).eval())
values = [model(torch.ones(2, 4))["many"][1].exp() for _ in range(60)]
sum(values).sum().backward()
""",
    "a running sum": """
model = dycl.accelerate(nn.Linear(4, 4).eval())
total = 0
for _ in range(60):
    total = total + model(torch.ones(2, 4)).square().sum()
total.backward()
""",
    "autograd.grad": """
model = dycl.accelerate(nn.Linear(4, 4).eval())
for _ in range(60):
    torch.autograd.grad(model(torch.ones(2, 4)).sum(), model.weight)
""",
    "inputs that require gradients": """
model = dycl.accelerate(nn.Linear(4, 4).eval())
x = torch.ones(2, 4, requires_grad=True)
for _ in range(60): model(x)
""",
    "validation without no_grad after training": """
model = dycl.accelerate(nn.Linear(4, 4))
model(torch.ones(2, 4)).sum().backward()
model.eval()
for _ in range(60): model(torch.ones(2, 4))
""",
    "every fifteenth result is used": """
model = dycl.accelerate(nn.Linear(4, 4).eval())
kept = []
for i in range(200):
    out = model(torch.ones(2, 4))
    if i % 15 == 0: kept.append(out)
""",
    "an output that cannot be looked into": """
class Hidden:
    __slots__ = ("y",)
class Net(nn.Linear):
    def forward(self, x):
        hidden = Hidden()
        hidden.y = super().forward(x)
        return hidden
model = dycl.accelerate(Net(4, 4).eval())
for _ in range(60): model(torch.ones(2, 4))
""",
    "no_grad": "model = dycl.accelerate(nn.Linear(4, 4).eval())\nwith torch.no_grad():\n    for _ in range(60): "
               "model(torch.ones(2, 4))",
    "accelerate_all, training": """
model, handle = nn.Linear(4, 4).eval(), dycl.accelerate_all()
for _ in range(60): model(torch.ones(2, 4)).sum().backward()
""",
}


def test_programs_that_train_never_hear_it():
    assert said(TRAINS) == dict.fromkeys(TRAINS, "")
