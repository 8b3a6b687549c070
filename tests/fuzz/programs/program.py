"""A program as data: inputs, modules and steps, each a few lines of Python; and the script that it is the text of."""

import dataclasses
import re

from . import layout, prelude

CALLS = 4  # a segment is seen new, as a plan of the first kind, as a tuned one, and again
FOOTER = '''import dycl

for accelerated in (False, True):
    program, modules = build(*[dycl.accelerate] * accelerated)
    for call in range({calls}):
        arguments = inputs(call)
        torch.manual_seed(100 * {seed} + call)
        with {mode}:
            try:
                result = program(*arguments)
            except Exception as error:
                result = repr(error)
        print("dycl " if accelerated else "eager", call, result)
'''
MODES = {"no_grad": "torch.no_grad()", "inference": "torch.inference_mode()", "grad": "torch.enable_grad()"}


@dataclasses.dataclass(frozen=True)
class Input:
    name: str
    sizes: tuple
    strides: tuple
    offset: int
    dtype: str
    seed: int
    values: str
    grad: bool = False
    of: str = ""  # the argument before, in whose memory it lies

    def text(self, other=None):
        """other: (old size, new size) of the call with other shapes."""
        if self.of:
            return f"{self.of}.as_strided({self.sizes}, {self.strides}, {self.offset})"
        sizes, strides = self.sizes, self.strides
        if other is not None:
            sizes, strides = layout.resized(sizes, strides, *other)
        grad = ".requires_grad_()" if self.grad else ""
        return f'make({sizes}, {strides}, {self.offset}, {self.dtype}, {self.seed} + seed, "{self.values}"){grad}'


@dataclasses.dataclass(frozen=True)
class Step:
    """Lines of the program's body. what: for statistics and the weights of shrinking."""

    text: str
    what: str

    def lines(self):
        return [f"    {line}" for line in self.text.split("\n")]


@dataclasses.dataclass(frozen=True)
class Program:
    inputs: tuple = ()
    modules: tuple = ()  # texts of constructors; the k-th is m<k>
    steps: tuple = ()
    returned: tuple = ()
    mode: str = "no_grad"  # or "inference", "grad"
    form: str = "function"  # or "module": the program is a module's forward
    other: tuple | None = None  # the third call has other shapes
    calls: int = CALLS
    seed: int = 0

    def namespace(self):
        """What the source runs in."""
        return dict(vars(prelude))

    def source(self):
        """Defines build(accelerate), inputs(call), which are called for eager and for dycl separately."""
        names = ", ".join(i.name for i in self.inputs)
        owners = {i.of for i in self.inputs}
        body = [line for step in self.steps for line in step.lines()]
        result = f"    return [{', '.join(self.returned)}], log"
        lines = ["def inputs(call):", "    seed = 1000 * call"]
        if self.other is not None:
            resized = ", ".join(i.text(self.other) for i in self.inputs)
            lines += ["    if call == 2:", f"        return [{resized}]"]
        made = [f"({i.name} := {i.text()})" if i.name in owners else i.text() for i in self.inputs]
        lines += ["    return [" + ", ".join(made) + "]", "", "",
                  "def build(accelerate=lambda program: program):",
                  "    torch.manual_seed(1)"]
        if self.form == "module":
            lines += ["", "    class Program(torch.nn.Module):", "        def __init__(self):",
                      "            super().__init__()"]
            lines += [f"            self.m{k} = {text}" for k, text in enumerate(self.modules)]
            lines += ["", f"        def forward({', '.join(['self', *(i.name for i in self.inputs)])}):"]
            lines += [f"            m{k} = self.m{k}" for k in range(len(self.modules))]
            lines += ["            log = []"] + [f"        {line}" for line in [*body, result]]
            lines += ["", "    program = Program()",
                      f"    return accelerate(program), "
                      f"[{', '.join(f'program.m{k}' for k in range(len(self.modules)))}]"]
        else:
            lines += [f"    m{k} = {text}" for k, text in enumerate(self.modules)]
            lines += ["", f"    def program({names}):",
                      "        log = []"] + [f"    {line}" for line in [*body, result]]
            lines += ["", f"    return accelerate(program), [{', '.join(f'm{k}' for k in range(len(self.modules)))}]"]
        return "\n".join(lines) + "\n"

    def script(self):
        """A program of its own, for the root of the source tree."""
        footer = FOOTER.format(calls=self.calls, mode=MODES[self.mode], seed=self.seed)
        return f"from tests.fuzz.programs.prelude import F, make, note, np, torch\n\n\n{self.source()}\n\n{footer}"


def variables(text):
    """Names of tensors in a text: x<n> and v<n>."""
    return set(re.findall(r"\b[xv]\d+\b", text))
