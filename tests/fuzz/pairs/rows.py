"""What records each row of the registry: functions from a case and the name of an operand to an expression of plain
torch. This file: elementwise operators, conversions, reductions."""

import dataclasses
from typing import Callable

from . import edges, values

EXACT, ELEMENTWISE, REDUCTION, PRODUCT = (
    "exact",
    "elementwise",
    "reduction",
    "product",
)  # classes of tests/py/tolerance.py


@dataclasses.dataclass
class Row:
    """kind: how exact the operator is; on_grid: exact for operands on the grid (values.py); wants: the sizes that its
    operand should have where that can be chosen ("any", "matrix", "line", "image"); power: its error grows with that
    power of the operands' magnitude; zeros: whether the sign of a zero is torch's (docs/correctness.md, "Known
    differences")."""

    name: str
    make: Callable
    kind: str
    on_grid: bool
    wants: str
    power: int
    zeros: bool


ROWS = {}
_EITHER_ZERO = (
    "amax amin argmax argmin maximum minimum fmax fmin clamp hardtanh".split()
)  # torch's own choice between 0 and -0 depends on the tensor's length


def row(name, kind=EXACT, on_grid=False, wants="any", power=1):
    def register(make):
        assert name not in ROWS, name
        ROWS[name] = Row(name, make, kind, on_grid, wants, power, name not in _EITHER_ZERO)
        return make

    return register


# ---- One operand

_UNARY = {
    EXACT: {
        "neg": "-{x}|torch.neg({x})|{x}.negative()",
        "abs": "{x}.abs()|torch.abs({x})|abs({x})",
        "sign": "{x}.sign()",
        "square": "{x}.square()|torch.square({x})|{x} ** 2",
        "copy": "{x} ** 1|torch.pow({x}, 1.0)",
        "relu": "{x}.relu()|F.relu({x})|torch.relu({x})|nn.ReLU()({x})",
        "relu6": "F.relu6({x})",
        "cut": "F.cosine_similarity({x}.detach().requires_grad_(), {x}, -1).detach()",
        "hardsigmoid": "F.hardsigmoid({x})",
        "floor": "{x}.floor()",
        "ceil": "{x}.ceil()",
        "round": "{x}.round()",
        "trunc": "{x}.trunc()|torch.fix({x})",
        "frac": "{x}.frac()",
        "isnan": "{x}.isnan()",
        "isinf": "{x}.isinf()",
        "isfinite": "{x}.isfinite()",
        "logical_not": "{x}.logical_not()",
        "bitwise_not": "~{x}|{x}.bitwise_not()",
    },
    ELEMENTWISE: {
        "exp": "{x}.exp()",
        "exp2": "{x}.exp2()",
        "expm1": "{x}.expm1()",
        "log": "{x}.log()|torch.log({x})",
        "log2": "{x}.log2()",
        "log10": "{x}.log10()",
        "log1p": "{x}.log1p()",
        "sqrt": "{x}.sqrt()|{x} ** 0.5",
        "rsqrt": "{x}.rsqrt()|{x} ** -0.5",
        "reciprocal": "{x}.reciprocal()|{x} ** -1|1 / {x}",
        "sin": "{x}.sin()",
        "cos": "{x}.cos()",
        "tan": "{x}.tan()",
        "tanh": "{x}.tanh()|F.tanh({x})",
        "erf": "{x}.erf()|torch.special.erf({x})",
        "sigmoid": "{x}.sigmoid()|F.sigmoid({x})",
        "logsigmoid": "F.logsigmoid({x})",
        "gelu": "F.gelu({x})|nn.GELU()({x})",
        "gelu_tanh": 'F.gelu({x}, approximate="tanh")',
        "silu": "F.silu({x})|{x} * {x}.sigmoid()",
        "mish": "F.mish({x})",
        "hardswish": "F.hardswish({x})",
        "softsign": "F.softsign({x})",
    },
}
_FLOATS_ONLY = "cut relu6 hardsigmoid frac logsigmoid gelu gelu_tanh silu mish hardswish".split()
_PLACES = (  # that have a form in place
    "neg abs sign square exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan tanh erf sigmoid relu "
    "floor ceil round trunc frac"
).split()


def _unary(name, forms):
    def make(c, x):
        if name in _FLOATS_ONLY:
            x = c.floating(x)
        if name == "bitwise_not":
            x = c.integral(x, (*values.INTEGERS, "bool"))
        if name == "sign" and c.dtype(x) == "bool" and c.chance(0.8):
            x = c.integral(x)
        if name in _PLACES and c.dtype(x) in values.FLOATS and c.writable(x) and c.chance(0.1):
            return f"{x}.{name}_()"
        return c.rng.choice(forms).format(x=x)

    return make


for _kind, _table in _UNARY.items():
    for _name, _forms in _table.items():
        row(_name, _kind)(_unary(_name, _forms.split("|")))

# ---- Two operands

_BINARY = {
    EXACT: {
        "add": "{x} + {y}|{y} + {x}|torch.add({x}, {y})",
        "sub": "{x} - {y}|{y} - {x}|torch.sub({x}, {y})|torch.rsub({x}, {y})",
        "mul": "{x} * {y}|{y} * {x}|torch.mul({x}, {y})",
        "div": "{x} / {y}|{y} / {x}|torch.div({x}, {y})",
        "maximum": "torch.maximum({x}, {t})|torch.max({x}, {t})",
        "minimum": "torch.minimum({x}, {t})|torch.min({x}, {t})",
        "fmax": "torch.fmax({x}, {t})",
        "fmin": "torch.fmin({x}, {t})",
        "eq": "{x} == {y}|torch.eq({x}, {y})",
        "ne": "{x} != {y}",
        "lt": "{x} < {y}|{y} < {x}",
        "le": "{x} <= {y}",
        "gt": "{x} > {y}|torch.gt({x}, {y})",
        "ge": "{x} >= {y}",
        "logical_and": "torch.logical_and({x}, {t})",
        "logical_or": "torch.logical_or({x}, {t})",
        "logical_xor": "torch.logical_xor({x}, {t})",
        "copysign": "torch.copysign({x}, {y})",
    },
    ELEMENTWISE: {
        "atan2": "torch.atan2({x}, {t})|torch.atan2({t}, {x})",
    },
}


def tensor_other(c, x, **options):
    return c.other(x, numbers=("",), **options) or c.argument(tuple(c[x].shape), c.dtype(x))


def _binary(name, forms):
    def make(c, x):
        if name in ("sub", "copysign") and c.dtype(x) == "bool" and c.chance(0.9):
            x = c.floating(x)
        form = c.rng.choice(forms)
        if name in ("add", "sub", "mul", "div") and c.writable(x) and c.chance(0.08):
            form = f"{{x}}.{name}_({{y}})"
        if "{t}" in form:
            return form.format(x=x, t=tensor_other(c, x))
        return form.format(x=x, y=c.other(x, kind="positive" if name == "div" and c.chance(0.5) else None))

    return make


for _kind, _table in _BINARY.items():
    for _name, _forms in _table.items():
        row(_name, _kind)(_binary(_name, _forms.split("|")))


def _bitwise(name, symbol):
    bools = [] if "shift" in name else ["bool"]

    def make(c, x):
        x = c.integral(x, (*values.INTEGERS, *bools))
        other = c.other(x, dtypes=[c.dtype(x), *bools, "i32"], numbers=("1", "3", "6"))
        return f"{x} {symbol} {other}" if c.chance(0.7) or other.isdigit() else f"torch.{name}({x}, {other})"

    return make


_BITS = {"bitwise_and": "bitwise_and &", "bitwise_or": "bitwise_or |", "bitwise_xor": "bitwise_xor ^",
         "shift_left": "bitwise_left_shift <<", "shift_right": "bitwise_right_shift >>"}
for _name, _forms in _BITS.items():
    row(_name)(_bitwise(*_forms.split()))


def _divisor(c, x):
    if c.dtype(x) not in values.FLOATS:
        return c.choose("2", "3", "-2", "7")
    return c.other(x, dtypes=values.FLOATS, kind="positive", numbers=("2", "0.75", "-1.5", "3"))


row("floor_div")(
    lambda c, x: c.choose(
        "{x} // {y}", "torch.floor_divide({x}, {y})", 'torch.div({x}, {y}, rounding_mode="floor")'
    ).format(x=x, y=_divisor(c, x))
)
row("trunc_div")(lambda c, x: 'torch.div({x}, {y}, rounding_mode="trunc")'.format(x=x, y=_divisor(c, x)))
row("remainder")(lambda c, x: c.choose("{x} % {y}", "torch.remainder({x}, {y})").format(x=x, y=_divisor(c, x)))
row("fmod")(lambda c, x: "torch.fmod({x}, {y})".format(x=x, y=_divisor(c, x)))


@row("pow", ELEMENTWISE)
def _pow(c, x):
    x = c.floating(x) if c.chance(0.8) else x
    form = c.rng.randint(0, 3)
    if form == 0:
        return f"{x} ** {c.choose('3', '1.5', '-2.5', '0.25')}"
    if form == 1:
        return f"{c.choose('2', '0.5', '3.0')} ** {x}"
    other = tensor_other(c, x, dtypes=values.FLOATS)
    return f"torch.pow({x}, {other})" if form == 2 else f"torch.pow({other}, {x})"


@row("leaky_relu")
def _leaky_relu(c, x):
    x = c.floating(x)
    if c.chance(0.4) and c[x].dim() >= 1:
        channels = c[x].shape[1] if c[x].dim() > 1 and c.chance(0.6) else 1
        return f"F.prelu({x}, {c.weight((channels,), c.dtype(x))})"
    return f"F.leaky_relu({x}{c.choose('', ', 0.25')})"


row("celu", ELEMENTWISE)(lambda c, x: f"F.celu({c.floating(x)}{c.choose('', ', 1.5')})")
row("hardshrink")(lambda c, x: f"F.hardshrink({c.floating(x)}{c.choose('', ', 0.25')})")
row("elu", ELEMENTWISE)(lambda c, x: f"F.elu({c.floating(x)}{c.choose('', ', 1.5')})")


@row("where")
def _where(c, x):
    form = c.rng.randint(0, 3)
    if c.dtype(x) == "bool" and form < 2:
        like = c.argument(tuple(c[x].shape), c.choose("f32", "i64", "f64", "bf16"))
        return f"torch.where({x}, {like}, {c.other(like)})"
    mask = c.argument(c.choose(tuple(c[x].shape), tuple(1 if c.chance(0.5) else n for n in c[x].shape)), "bool")
    if form == 2:
        return (
            f"{x}.masked_fill({mask}, {c.choose('0.5', '2', '-1')})"
            if c.dtype(x) in values.FLOATS
            else f"{x}.masked_fill({mask}, 2)"
        )
    other = c.other(x)
    return f"torch.where({mask}, {x}, {other})" if c.chance(0.6) else f"torch.where({mask}, {other}, {x})"


@row("lerp", ELEMENTWISE)
def _lerp(c, x):
    x = c.floating(x)
    end = x if c.twice else c.argument(tuple(c[x].shape), c.dtype(x))
    weight = c.choose("0.25", "0.75", "1.5") if c.chance(0.6) else c.argument(tuple(c[x].shape), c.dtype(x))
    return f"torch.lerp({x}, {end}, {weight})" if c.chance(0.7) else f"torch.lerp({end}, {x}, {weight})"


@row("add_scaled")
def _add_scaled(c, x):
    x = c.floating(x)
    alpha = c.choose(
        "2", "0.5", "-2", "4.0"
    )  # exact on the grid, so that both roundings of other code show in infinities
    form = "{x}.{op}_({t}, alpha={a})" if c.writable(x) and c.chance(0.1) else "torch.{op}({x}, {t}, alpha={a})"
    return form.format(x=x, op=c.choose("add", "sub"), t=tensor_other(c, x), a=alpha)


@row("clamp")
def _clamp(c, x):
    if c.dtype(x) == "bool":
        x = c.integral(x)
    if c.chance(0.25):
        low = tensor_other(c, x, dtypes=[c.dtype(x)])
        return f"torch.clamp({x}, {low}, {tensor_other(c, x, dtypes=[c.dtype(x)])})"
    low, high = c.choose(("-1", "2"), ("0", "3"), ("-0.5", "0.75") if c.dtype(x) in values.FLOATS else ("1", "4"))
    return f"{x}.clamp({low}, {high})"


row("hardtanh")(lambda c, x: f"F.hardtanh({c.floating(x)}{c.choose('', ', -0.5, 2.0')})")
row("softplus", ELEMENTWISE)(lambda c, x: f"F.softplus({c.floating(x)}{c.choose('', ', 2.0, 3.0')})")
row("threshold")(lambda c, x: f"F.threshold({c.floating(x)}, {c.choose('0.5, -1.0', '0.0, 2.0')})")

# ---- Conversions, copies, views


@row("cast")
def _cast(c, x):
    own = c.dtype(x)
    target = c.rng.choice([d for d in values.DTYPES if d != own])
    if own in values.FLOATS and target in values.INTEGERS:
        x = c.let(f"{x}.clamp(-8, 8)") if c.kind not in values.SPECIAL else x
        if c.kind in values.SPECIAL:  # outside the integers' range the conversion has no defined result
            target = "bool"
        elif target == "u8":
            x = c.let(f"{x}.abs()")
    method = {
        "f32": "float", "f64": "double", "i64": "long", "i32": "int", "bool": "bool", "bf16": "bfloat16", "f16": "half"
    }.get(target)
    if method and c.chance(0.4):
        return f"{x}.{method}()"
    return f"{x}.to(torch.{str(values.DTYPES[target])[6:]})"


def view_forms(c, x):
    """Expressions that make a view of x."""
    shape, forms = tuple(c[x].shape), []
    rank = len(shape)
    if rank:
        d = c.rng.randrange(rank)
        colons = ", ".join([":"] * d + ["{}"])
        forms += [
            f"{x}.transpose({d}, -1)",
            f"{x}.unsqueeze({d})",
            f"{x}[{colons.format('::2')}]",
            f"{x}.flatten()" if c[x].is_contiguous() else f"{x}.unsqueeze(-1)",
        ]
        if shape[d]:
            start = c.rng.randrange(shape[d])
            forms += [
                f"{x}.narrow({d}, {start}, {c.rng.randint(1, shape[d] - start)})",
                f"{x}[{colons.format(c.rng.randrange(shape[d]))}]",
            ]
            forms += [
                f"{x}.chunk(2, {d})[{-1}]",
                f"{x}.unfold({d}, {c.rng.randint(1, shape[d])}, 1)" if rank < 6 else f"{x}.unsqueeze(0)",
            ]
        forms += [f"{x}.permute{tuple(c.rng.sample(range(rank), rank)) if rank > 1 else '(0)'}"]
        if shape[-1] % 2 == 0:
            forms.append(f"{x}.unflatten(-1, (2, {shape[-1] // 2}))")
    if rank > 1:
        forms += [f"{x}.diagonal()", f"{x}.mT"]
    if rank < 7:
        forms += [f"{x}.expand({tuple([2, *shape])})", f"{x}[None]"]
    return forms


@row("view")
def _view(c, x):
    return c.rng.choice(view_forms(c, x))


@row("contiguous")
def _contiguous(c, x):
    forms = ["{x}.clone()", "{x}.clone(memory_format=torch.contiguous_format)", "{x}.contiguous()"]
    if c[x].dim() > 1:
        forms += ["{x}.transpose(0, -1).contiguous()", "{x}.transpose(0, 1).reshape(-1)", "{x}.transpose(0, 1).clone()"]
    if c[x].dim() == 4:
        forms += ["{x}.contiguous(memory_format=torch.channels_last)", "{x}.clone(memory_format=torch.channels_last)"]
    if c[x].dim() in (1, 2):
        forms += [f"{{x}}.repeat({', '.join(['2'] * c[x].dim())})", "{x}.repeat_interleave(2, 0)"]
    return c.rng.choice(forms).format(x=x)


# ---- Reductions


def dims(c, x):
    """Text of the dimensions to reduce, with a leading comma; nothing: all of them."""
    rank = c[x].dim()
    if rank == 0 or c.chance(0.12):
        return ""
    if c.chance(0.15):
        return edges.dims(c, rank)
    if c.chance(0.55):
        return f", {c.dim(x)}"
    return f", {tuple(sorted(c.rng.sample(range(rank), c.rng.randint(1, rank))))}"


def keep(c):
    return ", keepdim=True" if c.chance(0.45) else ""


def _reduction(name, forms, floats=False, several=True, empty=True):
    def make(c, x):
        x = c.floating(x) if floats else x
        x = x if empty else c.nonempty(x)
        over = dims(c, x)
        if not several and over:
            over = f", {c.dim(x)}"
        return c.rng.choice(forms).format(
            x=x, over=over, keep=keep(c) if over else "", correction=c.choose("", ", correction=0") if over else ""
        )

    return make


@row("prod", REDUCTION)
def _prod(c, x):
    """Of few elements: whether many overflow on the way, and meet a zero then, is a matter of their order."""
    x = c.ranked(x, 1)
    d = c.dim(x)
    if c[x].shape[d] > 6:
        x = c.let(f"{x}.narrow({d}, 1, {c.rng.randint(1, 6)})")
    return f"torch.prod({x})" if c[x].numel() <= 6 else f"torch.prod({x}, {d}{keep(c)})"


row("sum", REDUCTION, on_grid=True)(_reduction("sum", ["torch.sum({x}{over}{keep})"]))
row("mean", REDUCTION)(_reduction("mean", ["torch.mean({x}{over}{keep})"], floats=True))
row("amax")(_reduction("amax", ["torch.amax({x}{over}{keep})"], empty=False))
row("amin")(_reduction("amin", ["torch.amin({x}{over}{keep})"], empty=False))
row("all")(_reduction("all", ["torch.all({x}{over}{keep})"]))
row("any")(_reduction("any", ["torch.any({x}{over}{keep})"]))
row("sumsq", REDUCTION, power=2)(
    _reduction("sumsq", ["torch.linalg.vector_norm({x}, 2{over}{keep})"], floats=True, empty=False)
)
row("sumabs", REDUCTION, on_grid=True)(
    _reduction("sumabs", ["torch.linalg.vector_norm({x}, 1{over}{keep})"], floats=True, empty=False)
)
row("var", REDUCTION, power=2)(
    _reduction(
        "var",
        [
            "torch.var({x}{over}{keep}{correction})",
            "torch.var_mean({x}{over}{keep}{correction})[0]",
        ],
        floats=True,
        empty=False,
    )
)
row("std", REDUCTION, power=1)(
    _reduction(
        "std",
        [
            "torch.std({x}{over}{keep}{correction})",
            "torch.std_mean({x}{over}{keep}{correction})[0]",
        ],
        floats=True,
        empty=False,
    )
)


def _place(name):
    def make(c, x):
        if c.dtype(x) == "bool":
            x = c.floating(x) if c.chance(0.5) else c.integral(x)
        x = c.nonempty(c.ranked(x, 1))
        if c.chance(0.2):
            c.limit = c[x].numel()
            return f"{x}.{name}()"
        d = c.dim(x)
        c.limit = c[x].shape[d]
        if c.chance(0.3):
            which = c.rng.randint(0, 1)
            c.limit = c.limit if which else None
            return f"torch.{name[3:]}({x}, {d}{keep(c)})[{which}]"
        return f"{x}.{name}({d}{keep(c)})"

    return make


row("argmax")(_place("argmax"))
row("argmin")(_place("argmin"))
row("softmax", REDUCTION)(
    lambda c, x: c.choose("{x}.softmax({d})", "F.softmin({x}, {d})").format(
        x=(x := c.ranked(c.floating(x), 1)), d=c.dim(x)
    )
)
row("log_softmax", REDUCTION)(
    lambda c, x: "{x}.log_softmax({d})".format(x=(x := c.ranked(c.floating(x), 1)), d=c.dim(x))
)
row("cumsum", REDUCTION, on_grid=True)(lambda c, x: "{x}.cumsum({d})".format(x=(x := c.ranked(x, 1)), d=c.dim(x)))
