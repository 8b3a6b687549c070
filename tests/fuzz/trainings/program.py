"""A training as data: inputs, modules, lines of a forward pass and of a step; and the script that it is the text of."""

import dataclasses

from ..programs.layout import contiguous
from ..programs.program import Step
from . import prelude


@dataclasses.dataclass(frozen=True)
class Batch:
    """An input whose first dimension is the batch."""

    name: str
    sizes: tuple  # of the other dimensions
    dtype: str
    seed: int
    values: str

    def text(self):
        sizes = f"({', '.join(map(str, ('n', *self.sizes)))},)"
        strides = contiguous((1, *self.sizes))
        return f'make({sizes}, {strides}, 0, {self.dtype}, {self.seed} + seed, "{self.values}")'


FOOTER = '''import dycl

for accelerated in (False, True):
    step, (w,) = build(*[dycl.accelerate] * accelerated)
    for call in range({calls}):
        arguments = inputs(call)
        torch.manual_seed(100 * {seed} + call)
        try:
            result = step(*arguments)
        except Exception as error:
            result = repr(error)
        print("dycl " if accelerated else "eager", call, result, w.state_dict())
'''


@dataclasses.dataclass(frozen=True)
class Program:
    inputs: tuple = ()
    modules: tuple = ()  # texts of constructors; the k-th is self.m<k>
    layers: tuple = ()  # Steps of the forward pass, on x
    setup: tuple = ()  # Steps after the network is made: hooks, frozen parts
    finish: tuple = ()  # Steps after the optimizer is made
    optimizer: str = "torch.optim.SGD(net.parameters(), lr=0.01)"
    scheduler: str = "None"
    criterion: str = "None"
    train: tuple = ()  # Steps of a step
    holds: tuple = ("net",)  # what is accelerated: "net", "step", "optimizer", "everywhere", "run": a function
    sizes: tuple = (4, 4, 4)  # of batches: one a call
    dtype: str = "torch.float32"
    calls: int = 3
    seed: int = 0
    mode: str = "grad"

    @property
    def steps(self):
        return (*self.layers, *self.setup, *self.train)

    def namespace(self):
        return dict(vars(prelude))

    def source(self):
        """Defines build(accelerate), inputs(call), which are called for eager and for dycl separately."""
        names = ", ".join(i.name for i in self.inputs)
        cast = "" if self.dtype == "torch.float32" else f".to({self.dtype})"
        lines = ["w = World()", "", "", "class Net(nn.Module):", "    def __init__(self):",
                 "        super().__init__()"]
        lines += [f"        self.m{k} = {text}" for k, text in enumerate(self.modules)]
        lines += ["", "    def forward(self, x):", *indented(self.layers, 8), "        return x", "", ""]
        lines += ["def optimizer_of(net):", f"    return {self.optimizer}", "", ""]
        lines += ["def build(accelerate=lambda target: target):", "    torch.manual_seed(1)",
                  f"    w.net = Net(){cast}", f"    w.criterion = {self.criterion}", *indented(self.setup, 4)]
        lines += ["    w.net = accelerate(w.net)"] if "net" in self.holds else []
        lines += ["    w.optimizer = optimizer_of(w.net)"]
        lines += ["    w.optimizer = accelerate(w.optimizer)"] if "optimizer" in self.holds else []
        lines += [f"    w.scheduler = {self.scheduler}", *indented(self.finish, 4)]
        lines += ["    w.run = accelerate(lambda x: w.net(x))"] if "run" in self.holds else []
        lines += ["", f"    def step({names}):"]
        space = 8
        if "everywhere" in self.holds:
            lines, space = [*lines, "        with everywhere(accelerate):"], 12
        train = indented(self.train, space)
        train = [x.replace("w.net(x", "w.run(x") for x in train] if "run" in self.holds else train
        lines += [f"{' ' * space}w.begin()", *train, "        return [], []", ""]
        lines += [f"    return {'accelerate(step)' if 'step' in self.holds else 'step'}, [w]", "", ""]
        lines += ["def inputs(call):", f"    n, seed = {self.sizes}[call], 1000 * call"]
        lines += ["    return [" + ", ".join(i.text() for i in self.inputs) + "]"]
        return "\n".join(lines) + "\n"

    def script(self):
        """A program of its own, for the root of the source tree."""
        footer = FOOTER.format(calls=self.calls, seed=self.seed)
        return f"from tests.fuzz.trainings.prelude import *  # noqa: F403\n\n{self.source()}\n\n{footer}"


def indented(steps, space):
    return [" " * space + line for step in steps for line in step.text.split("\n")]


__all__ = ["Batch", "Program", "Step"]
