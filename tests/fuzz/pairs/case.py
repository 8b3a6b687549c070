"""A program under construction: lines of plain torch, each evaluated eagerly as it is added, so that what comes next
knows what it reads."""

import random

import torch

from . import values

HEADER = """import torch
import torch.nn.functional as F
from torch import inf, nan, nn
"""


class Unsuitable(Exception):
    """These choices do not make a program; others will."""


class Refused(Exception):
    """torch raised an error at the last line."""


def fresh_space():
    space = {}
    exec(HEADER, space)
    return space


MOST = 500_000  # elements of a tensor


class Case:
    """One random program.

    constants: names and texts of the tensors that the program finds as globals, the same in all calls; arguments: those
    that it is called with. lines: the body. Everything that a line may use has been evaluated, in `space`.
    """

    def __init__(self, seed, kind="grid", large=False):
        self.rng = random.Random(seed)
        self.kind, self.large = kind, large
        self.space = fresh_space()
        self.constants, self.arguments, self.lines = [], [], []
        self.twice = False  # whether binary operators read their operand on both sides
        self.places = {}  # names of index tensors -> below which number their elements are
        self.limit = None  # the same for the expression that was made last
        self.count = 0
        torch.default_generator.manual_seed(self.rng.randrange(2**31))

    def chance(self, probability):
        return self.rng.random() < probability

    def choose(self, *options):
        return self.rng.choice(options)

    def name(self, prefix):
        self.count += 1
        return f"{prefix}{self.count}"

    def __getitem__(self, name):
        """What a name stands for in this run."""
        return self.space[name]

    def dtype(self, name):
        return values.NAMES[self[name].dtype]

    # ---- Tensors

    def _declare(self, table, prefix, text):
        name = self.name(prefix)
        self.space[name] = made = eval(text, self.space)
        if made.numel() > MOST:
            raise Unsuitable
        table.append((name, text))
        return name

    def argument(self, shape, dtype, kind=None, formats=None):
        return self._declare(
            self.arguments, "x", values.tensor(self.rng, shape, dtype, self.kind if kind is None else kind, formats)
        )

    def constant(self, shape, dtype, kind=None, formats=None):
        text = values.tensor(self.rng, shape, dtype, self.kind if kind is None else kind, formats)
        if dtype in values.FLOATS and self.chance(0.8):
            text = f"nn.Parameter({text})"
        return self._declare(self.constants, "w", text)

    def weight(self, shape, dtype, kind=None, formats=None):
        """An operand of the kind that is constant as a rule: a parameter, or an argument."""
        formats = formats or (["contiguous"] if self.chance(0.7) else None)
        return (self.constant if self.chance(0.65) else self.argument)(shape, dtype, kind, formats)

    def other(self, x, dtypes=None, kind=None, numbers=("2", "3", "-1", "0.5", "0.25", "-1.5")):
        """A second operand of an elementwise operator: of the same sizes, or sizes that broadcast, or a number; or x
        once more."""
        if self.twice or self.chance(0.06):
            return x
        dtype = self.dtype(x) if self.chance(0.8) else self.rng.choice(list(values.DTYPES))
        if dtypes and dtype not in dtypes:
            dtype = self.rng.choice(dtypes)
        if self.chance(0.25):
            whole = [n for n in numbers if "." not in n]
            return self.rng.choice(numbers if dtype in values.FLOATS or self.chance(0.2) or not whole else whole)
        shape = tuple(self[x].shape)
        if shape and self.chance(0.4):
            shape = tuple(1 if self.chance(0.5) else n for n in shape)[
                self.rng.randrange(len(shape)) if self.chance(0.5) else 0 :
            ]
        if self.chance(0.05):
            shape = ()
        return self.weight(shape, dtype, kind) if self.chance(0.5) else self.argument(shape, dtype, kind)

    # ---- Lines

    def line(self, text):
        self.lines.append(text)
        try:
            exec(text, self.space)
        except Exception as error:
            raise Refused(text) from error
        made = self.space.get(text.split(" = ")[0])
        if isinstance(made, torch.Tensor) and made.numel() > MOST:
            raise Unsuitable

    def let(self, text, prefix="t"):
        """A name for what the expression gives. What is a name already keeps it."""
        if text.isidentifier():
            return text
        name = self.name(prefix)
        self.line(f"{name} = {text}")
        return name

    # ---- Adapting an operand to what an operator takes; most operators take most tensors, so little of this is
    # inserted

    def floating(self, x, only=values.FLOATS):
        """x as a floating-point tensor."""
        if self.dtype(x) in only or (self.dtype(x) not in values.FLOATS and self.chance(0.02)):
            return x
        return self.let(f"{x}.to(torch.{str(values.DTYPES[self.rng.choice(only)])[6:]})")

    def integral(self, x, only=values.INTEGERS):
        """x as an integer tensor. Floats outside the integers' range have no defined conversion."""
        if self.dtype(x) in only:
            return x
        target = f"torch.{str(values.DTYPES[self.rng.choice(only)])[6:]}"
        if self.dtype(x) in values.FLOATS:
            x = self.let(f"{x} > 0.5" if self.kind in values.SPECIAL or self.chance(0.2) else f"{x}.clamp(-8, 8)")
            if target == "torch.uint8" and self.dtype(x) in values.FLOATS:
                x = self.let(f"{x}.abs()")
        return self.let(f"{x}.to({target})")

    def ranked(self, x, least=0, most=8):
        """x with at least and at most so many dimensions."""
        shape = tuple(self[x].shape)
        if len(shape) < least:
            missing = least - len(shape)
            form = self.rng.randint(0, 2)
            if form == 0:
                return self.let(f"{x}[{', '.join(['None'] * missing)}]")
            if form == 1 and shape:
                return self.let(f"{x}.reshape({shape[:-1] + (1,) * missing + shape[-1:]})")
            return self.let(f"{x}.expand({tuple(self.rng.randint(1, 4) for _ in range(missing)) + shape})")
        if len(shape) > most:
            if self.chance(0.5):
                return self.let(f"{x}.flatten(0, {len(shape) - most})")
            return (
                self.let(f"{x}[{', '.join(['0' if n else ':' for n in shape[: len(shape) - most]])}]")
                if all(shape[: len(shape) - most])
                else self.let(f"{x}.flatten(0, {len(shape) - most})")
            )
        return x

    def writable(self, x):
        """Whether an operator in place may write x: no argument or constant, no memory that overlaps."""
        tensor = self[x]
        free = not any(x == name for name, _ in self.constants + self.arguments)
        return free and all(stride or size < 2 for size, stride in zip(tensor.shape, tensor.stride()))

    def overlaps(self, x):
        """Whether two elements of x may be one in memory."""
        reached = 0
        for stride, size in sorted(zip(self[x].stride(), self[x].shape)):
            if size > 1 and stride <= reached:
                return True
            reached += (size - 1) * stride if size > 1 else 0
        return False

    def nonempty(self, x):
        if self[x].numel() == 0:
            raise Unsuitable
        return x

    def dim(self, x):
        rank = self[x].dim()
        if rank == 0:
            return self.rng.choice([0, -1])
        d = self.rng.randrange(rank)
        return d - rank if self.chance(0.3) else d

    # ---- The whole

    def function(self, name, parameters, lines, result):
        body = "".join(f"    {line}\n" for line in lines)
        return f"def {name}({', '.join(parameters)}):\n{body}    return {result}\n"
