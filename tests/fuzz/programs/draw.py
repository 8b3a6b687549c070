"""Draws a program: every line runs in eager torch as soon as it is drawn, so that the next ones fit the shapes that
there are."""

import contextlib
import io
import math
import warnings

import numpy as np
import torch

from . import layout, prelude
from .layout import MOST
from .program import Input, Program, Step, variables

FLOATS = ("torch.float32", "torch.float64")
INTEGERS = ("torch.int64", "torch.int32", "torch.int16", "torch.int8", "torch.uint8")
# what dycl represents nothing in
STRANGE = ("torch.float16", "torch.bfloat16", "torch.complex64", "torch.complex128", "torch.uint16")
DTYPES = (*FLOATS, *INTEGERS, "torch.bool", *STRANGE)
COMMON = {"torch.float32": 60, "torch.float64": 7, "torch.int64": 10, "torch.int32": 4, "torch.int16": 2,
          "torch.int8": 2, "torch.uint8": 3, "torch.bool": 8}
COMMON |= dict.fromkeys(STRANGE, 0.8)
MOST_RESULT = 60_000  # elements; larger results are not kept


def name_of(dtype):
    return str(dtype)


class Choices:
    """What is drawn from one generator of random numbers."""

    def __init__(self, rng):
        self.rng = rng

    def chance(self, p):
        return self.rng.random() < p

    def pick(self, *options):
        return self.rng.choice(options)

    def weighted(self, weights):
        return self.rng.choices(list(weights), list(weights.values()))[0]


class Draw(Choices):
    """The program under construction. pool: its tensors by name. Names of tensors are what the drawing functions hand
    around."""

    def __init__(self, rng, *, mode="no_grad", reuse=0.75, lazy=0.4, keep_errors=0.5, values=None, main=None,
                 modules=False, floats="torch.float32", edges=0.2):
        super().__init__(rng)
        self.edges, self.hollow = edges, False  # chance of vocabulary_edges.py; whether new tensors have a size of 0
        self.mode, self.reuse, self.lazy, self.keep_errors = mode, reuse, lazy, keep_errors
        self.values, self.main, self.floats = values, main, floats  # floats: the dtype of most tensors
        self.pool, self.inputs, self.modules, self.steps, self.returned = {}, [], [], [], []
        self.namespace = {**vars(prelude), "log": [], "seed": 0}
        self.count = 0
        self.leaves = False  # whether arguments may need gradients
        torch.default_generator.manual_seed(0)  # a program depends on nothing but its seed

    # ---- choices

    def optional(self, make, p=0.5):
        """A text or None, which leaves the parameter out."""
        return make() if self.chance(p) else None

    def __getitem__(self, name):
        return self.pool[name]

    def dtype(self):
        dtype = self.weighted(COMMON)
        return self.floats if dtype == "torch.float32" else dtype

    def shape(self, least=0, most=5):
        return self.shape_of(self.rng.choice([r for r in (0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5) if least <= r <= most]))

    def shape_of(self, rank):
        shape = layout.some_shape(self.rng, rank)
        if self.hollow and rank:
            at = self.rng.randrange(rank)
            shape = (*shape[:at], 0, *shape[at + 1 :])
        return shape

    # ---- running

    def fresh(self):
        self.count += 1
        return f"v{self.count}"

    @contextlib.contextmanager
    def eager(self):
        modes = {"no_grad": torch.no_grad, "inference": torch.inference_mode, "grad": contextlib.nullcontext}
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), modes[self.mode]():
            warnings.simplefilter("ignore")
            yield

    def execute(self, text):
        """The error, or None."""
        try:
            with self.eager():
                exec(text, self.namespace)  # noqa: S102
        except Exception as error:  # noqa: BLE001
            return error
        return None

    def look(self):
        """The pool after a step."""
        for name, value in list(self.namespace.items()):
            if name[0] in "xv" and name[1:].isdigit():
                if isinstance(value, torch.Tensor) and (value.numel() <= MOST_RESULT
                                                        or name[0] == "x") and value.layout == torch.strided:
                    self.pool[name] = value
                else:
                    self.pool.pop(name, None)
        for name in [n for n in self.pool if n not in self.namespace]:
            del self.pool[name]

    def step(self, text, what):
        """Adds lines to the program. 1: they ran; 0: they raised, and are not kept or caught in the program."""
        error = self.execute(text)
        if error is not None:
            if isinstance(error, SyntaxError) or not self.chance(self.keep_errors):
                return 0
            caught = "\n".join(f"    {line}" for line in text.split("\n"))
            text = f"try:\n{caught}\nexcept Exception as e:\n    log.append((type(e).__name__, str(e)))"
        for name in variables(text):
            value = self.namespace.get(name)
            if isinstance(value, torch.Tensor) and value.numel() > MOST_RESULT:
                del self.namespace[name]
                self.look()
                return 0
        self.steps.append(Step(text, what))
        self.look()
        return error is None

    def step_of(self, text):
        """A name for a view of an argument."""
        name = self.fresh()
        assert self.step(f"{name} = {text}", "view")
        return name

    def result(self, text, what):
        """A step that gives what the expression makes a name. The name; None: it raised."""
        name = self.fresh()
        if not self.step(f"{name} = {text}", what):
            return None
        value = self.namespace.get(name)
        if isinstance(value, (tuple, list)) and value and all(isinstance(v, torch.Tensor) for v in value):
            if len(value) <= 4:
                names = [self.fresh() for _ in value]
                self.step(f"{', '.join(names)}, = {name}", "unpack")
            else:
                self.step(f"{self.fresh()} = {name}[{self.rng.randrange(len(value))}]", "unpack")
        elif isinstance(value, np.ndarray):
            self.step(f"log.append(({name}.shape, {name}.strides, str({name}.dtype), {name}.copy()))", "log")
        elif not isinstance(value, torch.Tensor) and isinstance(value, (bool, int, float, str, tuple, list,
                                                                        torch.Size)):
            self.step(f"log.append({name})", "log")
        return name

    # ---- tensors

    def input(self, shape, dtype, values=None, *, plain=None, grad=False):
        """A new tensor: an argument with strides of its own, or recorded views of a copy of one."""
        rng = self.rng
        values = values or self.values or rng.choice(["normal", "grid", "grid", "positive", "special"])
        name = f"x{len(self.inputs)}"
        seed = rng.randrange(1000)
        lazy = self.chance(self.lazy) if plain is None else not plain
        base, views = layout.chain(rng, shape)
        lazy = lazy and math.prod(base) <= MOST_RESULT
        if lazy:
            made = Input(name, base, layout.contiguous(base), 0, dtype, seed, values, grad)
        else:
            made = Input(name, shape, *layout.some_strides(rng, shape), dtype, seed, values, grad)
        self.inputs.append(made)
        with self.eager():
            self.namespace[name] = self.pool[name] = eval(made.text(), self.namespace)  # noqa: S307
        if not lazy:
            return name
        result = self.fresh()
        assert self.step(f"{result} = {name}.clone(){views}", "clone")
        return result

    def tensor(self, *, rank=None, shape=None, dtype=None, least=0, most=5, values=None, reuse=None):
        """A tensor of the pool, or a new one. dtype: one, or several to choose from; None: any."""
        if shape is not None:
            shape = tuple(shape)
        dtypes = (dtype,) if isinstance(dtype, str) else dtype
        if self.chance(self.reuse if reuse is None else reuse) and values is None:
            found = [
                n
                for n, t in self.pool.items()
                if (rank is None or t.dim() == rank)
                and least <= t.dim() <= most
                and (shape is None or t.shape == shape)
                and (dtypes is None or name_of(t.dtype) in dtypes)
                and (not self.hollow or shape is not None or not t.numel())
            ]
            if found:
                return self.rng.choice(found[-6:] if self.chance(0.6) else found)
        if shape is None:
            shape = self.shape_of(rank) if rank is not None else self.shape(least, most)
        if dtypes is None or (self.main in dtypes):
            dtype = self.main or self.dtype()
        else:
            dtype = self.rng.choice(dtypes)
        return self.input(shape, dtype, values)

    def finite(self, **options):
        """Weights and the like: where they hold NaN or infinities, torch's own answer depends on the algorithm that it
        takes."""
        return self.tensor(values=self.pick("grid", "normal"), **options)

    def floating(self, **options):
        """Mostly a tensor of the program's floats; sometimes any other."""
        if self.main is not None or self.chance(0.08):
            return self.tensor(**options)
        return self.tensor(dtype=self.floats if self.chance(0.9) else (self.floats, *FLOATS), **options)

    def like(self, name, dtype=None):
        """A tensor of the same dtype, unless said otherwise or by chance."""
        return dtype or (name_of(self[name].dtype) if self.chance(0.85) else self.dtype())

    def partner(self, name, dtype=None):
        """A tensor that can be broadcast with it, mostly."""
        shape = list(self[name].shape)
        if self.chance(0.2) and self.reuse:
            return self.tensor()
        if self.chance(0.5):
            for d in range(len(shape)):
                if self.chance(0.3):
                    shape[d] = 1
            shape = shape[self.rng.choice([0, 0, 1, 2]) :]
        if self.chance(0.1) and len(shape) < 5:
            shape = [self.pick(1, 2, 3), *shape]
        if self.chance(0.04) and shape:
            shape[self.rng.randrange(len(shape))] += 1
        if math.prod(shape) > MOST:
            return name
        return self.tensor(shape=shape, dtype=self.like(name, dtype))

    # ---- texts of arguments

    def number(self):
        whole = ["0", "1", "2", "-1", "3", "7", "True", "-3", "127", "-129", "300"]
        parts = ["0.5", "-1.5", "2.0", "1e-3", "0.0", "-0.0", "1.0", "0.3", "3.0", "-2.0"]
        rare = ["float('nan')", "float('inf')", "-float('inf')", "1e30", "2**40", "np.float32(1.5)", "np.int64(2)",
                "False", "1j"]
        return self.rng.choice(rare if self.chance(0.05) else whole if self.chance(0.4) else parts)

    def operand(self, name):
        """A number, or a tensor that fits."""
        return self.number() if self.chance(0.35) else self.partner(name)

    def dim(self, name, extra=0):
        rank = self[name].dim() + extra
        if self.chance(0.03):
            return str(self.pick(rank, -rank - 1, 7))
        limit = max(rank, 1)
        return str(self.rng.randrange(-limit, limit))

    def dims(self, name):
        """One dimension, several, or None."""
        rank = self[name].dim()
        r = self.rng.random()
        if r < 0.55 or rank < 2:
            return self.dim(name) if self.chance(0.9) else "None"
        some = self.rng.sample(range(rank), self.rng.randint(0 if self.chance(0.1) else 1, rank))
        some = [d - rank if self.chance(0.4) else d for d in some]
        return f"[{', '.join(map(str, some))}]" if self.chance(0.5) \
            else f"({', '.join(map(str, some))}{',' if len(some) == 1 else ''})"

    def flag(self):
        return self.pick("True", "False")

    def sizes(self, numbers):
        numbers = list(numbers)
        return f"({', '.join(map(str, numbers))}{',' if len(numbers) == 1 else ''})"

    def program(self, **options):
        return Program(tuple(self.inputs), tuple(self.modules), tuple(self.steps), tuple(self.returned), self.mode,
                       **options)
