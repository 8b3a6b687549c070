"""A whole training from a seed."""

import contextlib
import io
import random
import re
import warnings

import torch

from ..programs import compare, draw
from . import extras, flow, learn, losses, optimizers, prelude
from .layers import ALL, SPATIAL
from .program import Batch, Program, Step

MOST = 4000  # elements that a layer may give
PARAMETERS = 20_000


class Draw(draw.Choices):
    """The training under construction; x: what the forward pass has so far."""

    def __init__(self, rng, dtype, kind, shape):
        super().__init__(rng)
        self.dtype, self.kind = dtype, kind
        self.modules, self.layers, self.setups, self.train, self.inputs = [], [], [], [], []
        self.optimizer = self.scheduler = ""
        self.net = torch.nn.Module()
        self.namespace = {**vars(prelude), "self": self.net, "w": prelude.World()}
        torch.default_generator.manual_seed(0)
        x = Batch("x", shape, "torch.int64" if kind == "tokens" else dtype, rng.randrange(1000),
                  "index 11" if kind == "tokens" else rng.choice(["normal", "normal", "normal", "grid"]))
        self.inputs.append(x)
        self.namespace["x"] = eval(x.text(), {**self.namespace, "n": 4, "seed": 0})  # noqa: S307

    # ---- choices

    def flag(self):
        return self.pick("True", "False")

    def width(self):
        return self.shape[-1] if self.chance(0.4) else self.pick(2, 3, 4, 6, 8, 16)

    @property
    def x(self):
        return self.namespace["x"]

    @property
    def shape(self):
        return tuple(self.x.shape)

    # ---- the forward pass

    def run(self, text, modules=()):
        """What x becomes, or None."""
        names = {**self.namespace, "x": self.x}
        names["w"].net = self.net
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            try:
                for k, constructor in enumerate(modules):
                    made = eval(constructor, dict(self.namespace))  # noqa: S307
                    setattr(self.net, f"m{len(self.modules) + k}", made.to(self.x.dtype)
                            if self.x.is_floating_point() else made)
                exec(text, names)  # noqa: S102
            except Exception:  # noqa: BLE001
                return None
        x = names["x"]
        return x if isinstance(x, torch.Tensor) and x.shape[:1] == (4,) and 0 < x.numel() <= MOST else None

    def forget(self, modules):
        for k in range(len(modules)):
            if hasattr(self.net, f"m{len(self.modules) + k}"):
                delattr(self.net, f"m{len(self.modules) + k}")

    def keeps_shape(self, modules, text):
        x = self.run(text, modules)
        self.forget(modules)
        return x is not None and x.shape == self.x.shape

    def try_layer(self, modules, text, kind):
        x = self.run(text, modules)
        ranks = {"rows": 2, "sequence": 3, "signal": 3, "image": 4, "volume": 5, "tokens": 2}
        kind = kind or self.kind
        if x is None or x.dim() != ranks[kind] or sum(p.numel() for p in self.net.parameters()) > PARAMETERS:
            self.forget(modules)
            return
        self.modules += modules
        self.layers.append(Step(text, "layer"))
        self.kind, self.namespace["x"] = kind, x.detach()

    def try_text(self, text):
        x = self.run(text)
        if x is not None and x.shape == self.x.shape and x.dtype == self.x.dtype:
            self.layers.append(Step(text, "between"))
            self.namespace["x"] = x.detach()

    # ---- how it learns

    def target(self, sizes, dtype, values):
        self.inputs.append(Batch("t", tuple(sizes), dtype, self.rng.randrange(1000), values))

    def setup_text(self, text):
        self.setups.append(Step(text, "setup"))

    def train_text(self, text):
        self.train.append(Step(text.replace("{accelerate}", "accelerate" if self.accelerates else ""), "train"))


HOLDS = [*[("net",)] * 6, *[("step",)] * 3, *[("net", "optimizer")] * 2, ("run",), ("run",), ("run", "optimizer"),
         ("step", "optimizer"), ("net", "step"), ("optimizer",), ("everywhere",), ("net", "everywhere"),
         ("net", "step", "optimizer")]
# Lines that tokens do not take.
OF_FLOATS = re.compile(r"randn_like\(x\)|x\.requires_grad_|requires_grad_\(w|0\.7 \* x")


def start(rng):
    """(kind, sizes) of what a network is given, without the batch."""
    kind = rng.choice(["rows", "rows", "sequence", "tokens", "signal", "image", "image", "volume"])
    c = rng.choice([1, 2, 3, 4, 4, 6, 8])
    side = rng.choice([3, 4, 5, 6, 8])
    return kind, {
        "rows": (rng.choice([2, 3, 4, 6, 8, 16]),),
        "sequence": (rng.choice([1, 2, 3, 5, 7]), rng.choice([2, 4, 4, 6, 8])),
        "tokens": (rng.choice([1, 3, 5]),),
        "signal": (c, side + 2),
        "image": (c, side, rng.choice([side, side, 4, 5])),
        "volume": (rng.choice([1, 2, 4]), 3, 4, rng.choice([3, 4])),
    }[kind]


def draw_program(seed):
    """The first of the seed that can be built."""
    for attempt in range(20):
        program = _drawn(random.Random(f"training {seed} {attempt}"))
        try:
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                compare.build(program)
            return program
        except Exception:  # noqa: BLE001 (no parameter that Muon takes, an option that another forbids)
            continue
    raise ValueError(f"nothing can be built of {seed}")


def _drawn(rng):
    dtype = rng.choices(["torch.float32", "torch.float64"], [88, 12])[0]
    d = Draw(rng, dtype, *start(rng))
    d.accelerates = rng.random() < 0.5
    most, tries = rng.choice([1, 2, 3, 4, 5, 7]), 0
    while len(d.layers) < most or not any(p.requires_grad for p in d.net.parameters()) or d.kind not in ALL:
        tries += 1
        if tries > 60:
            break
        if d.kind in ALL and rng.random() < 0.25:
            flow.between(d)
        else:
            flow.some_layer(d)
    if d.kind in SPATIAL and rng.random() < 0.5:
        d.try_layer(["nn.Flatten()"], f"x = self.m{len(d.modules)}(x)", "rows")
    if rng.random() < 0.5:
        d.try_layer([f"nn.Linear({d.shape[-1]}, {rng.choice([2, 3, 5])})"], f"x = self.m{len(d.modules)}(x)", None)
    if rng.random() < 0.15 and len(d.layers) > 1:  # an early end of the forward pass, for what the loss takes as well
        at = rng.randrange(1, len(d.layers))
        d.layers.insert(at, Step(f"if x.shape[1:] == {d.shape[1:]} and x.mean().item() > 0.3:\n    return x", "end"))
    criterion, text = losses.loss(d)
    d.optimizer, d.scheduler = optimizers.optimizer(d), optimizers.scheduler(d)
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        learn.setup(d)
    learn.step(d, text)
    calls = rng.randint(4, 8)
    size = rng.choice([2, 3, 4, 4, 5, 8])
    sizes = [size] * calls
    if rng.random() < 0.5:
        for k in range(rng.choice([1, 1, 2])):
            sizes[rng.randrange(calls)] = rng.choice([1, 2, 3, 7])
    finish = tuple(Step(text, "finish") for text in extras.OF_OPTIMIZER if rng.random() < 0.05)
    tokens = d.inputs[0].dtype == "torch.int64"
    train = [s for s in d.train if not (tokens and OF_FLOATS.search(s.text))]
    return Program(tuple(d.inputs), tuple(d.modules), tuple(d.layers), tuple(d.setups), finish, d.optimizer,
                   d.scheduler,
                   str(criterion), tuple(train), rng.choice(HOLDS), tuple(sizes), dtype, calls, rng.randrange(1000))

