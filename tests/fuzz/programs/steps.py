"""What programs do besides calling one bound operator: operators that dycl has no binding for, writes, control flow,
values read by Python, NumPy, modules, gradients, random numbers, changes of mode. Each function adds a step, or more
than one, to a Draw."""

from . import calls, vocabulary
from .draw import name_of

STEPS = {}  # function -> weight


def step(weight):
    def register(function):
        STEPS[function] = weight
        return function

    return register


def scalar_of(d, name):
    """The text of a tensor of one element, made of any tensor."""
    x = d[name]
    if x.numel() == 1:
        return name
    if x.dtype.is_complex:
        return f"{name}.abs().sum()"
    if x.numel() and d.chance(0.5):
        return f"{name}[{', '.join(str(d.rng.randrange(n)) for n in x.shape)}]"
    return f"{name}.{d.pick('sum', 'sum', 'amax' if x.numel() else 'sum')}()"


# ---- operators without a binding, and forms that are rarely spelled

TEMPLATES = """
    {x}.sinh() | {x}.cosh() | {x}.atan() | {x}.asin() | torch.erfc({x}) | torch.digamma({x}) | torch.sinc({x}) | {x}.cumprod(0) | torch.cummax({x}, 0) | {x}.logcumsumexp(0)
    {x}.nan_to_num() | {x}.nan_to_num_(0.5) | torch.kron({x}, {x}) | {x}.diff() | torch.trace({x}) | torch.cross({x}, {x}) | {x}.nonzero() | torch.nonzero({x}, as_tuple=True)
    {x}.unique() | torch.unique({x}, return_counts=True) | {x}.masked_select({x} > 0) | torch.bincount({x}) | {x}.median() | {x}.mode() | {x}.kthvalue(1) | torch.quantile({x}, 0.5)
    {x}.scatter(0, torch.zeros(1, 1, dtype=torch.int64), 1) | {x}.index_add(0, torch.tensor([0]), {x}[:1]) | {x}.index_fill(0, torch.tensor([0]), 2) | {x}.take(torch.tensor([0]))
    torch.linspace(0, 1, 5) | torch.logspace(0, 1, 3) | torch.tril_indices(3, 3) | {x}.as_strided((1,), (1,)) | {x}.real | {x}.T | {x}.mT | {x}.H | {x}.data | {x}.view({x}.dtype)
    ({x} > 0).view(torch.uint8) | ({x}.nan_to_num(1, 2, 3).abs() * 2).clamp(0, 99).byte().view(torch.bool) | {x}.half() | {x}.bfloat16() | {x}.char() | {x}.short() | {x}.byte() | {x}.to(torch.float16) | {x}.heaviside({x})
    torch.atleast_2d({x}) | torch.block_diag({x}) | torch.combinations({x}) | torch.cartesian_prod({x}, {x}) | torch.cdist({x}, {x}) | F.pairwise_distance({x}, {x}) | F.cosine_similarity({x}, {x}, -1)
    F.unfold({x}, 1) | F.pixel_shuffle({x}, 1) | F.selu({x}) | F.celu({x}) | F.hardshrink({x}) | F.tanhshrink({x}) | F.softshrink({x}) | F.gumbel_softmax({x}) | F.rrelu({x}) | F.local_response_norm({x}, 2)
    F.instance_norm({x}) | F.lp_pool1d({x}, 2, 2) | F.max_pool3d({x}, 1) | F.avg_pool3d({x}, 1) | F.adaptive_max_pool2d({x}, 1) | F.smooth_l1_loss({x}, {x}) | F.huber_loss({x}, {x}) | F.kl_div({x}, {x})
    F.binary_cross_entropy_with_logits({x}, {x}) | F.binary_cross_entropy({x}.sigmoid(), {x}.clamp(0, 1)) | F.cross_entropy({x}, {x}.argmax(1)) | F.nll_loss({x}, {x}.argmax(1)) | torch.bucketize({x}, torch.tensor([0.0, 1.0])) | torch.searchsorted({x}, {x})
    torch.logaddexp({x}, {x}) | torch.hypot({x}, {x}) | torch.nextafter({x}, {x}) | torch.ldexp({x}, {x}) | torch.xlogy({x}, {x}) | torch.special.i0({x}) | torch.polygamma(1, {x}) | torch.float_power({x}, 2)
    torch.linalg.inv({x}) | torch.linalg.det({x}) | torch.tensordot({x}, {x}, 1) | torch.chain_matmul({x}, {x}) | {x}.inner({x}) | {x}.vdot({x}) | torch.addr({x}, {x}[0], {x}[0]) | {x}.matrix_power(2)
    torch.fft.rfft({x}) | torch.complex({x}, {x}) | torch.view_as_real({x}) | {x}.conj() | {x}.angle() | {x}.signbit() | {x}.logical_not_() | {x}.resize_(0) | {x}.squeeze_() | {x}.t_() | {x}.unsqueeze_(0)
    {x}.transpose_(0, -1) | {x}.detach_() | {x}.swapaxes_(0, -1) | {x}.clamp_(-1, 1) | {x}.clip_(min=0) | {x}.clamp_max(1) | {x}.clamp_min_(0) | {x}.masked_fill_({x} > 0, 0) | {x}.tril_() | {x}.cumsum_(0)
    torch.equal({x}, {x}) | torch.allclose({x}, {x}) | torch.is_tensor({x}) | {x}.stride() | {x}.storage_offset() | {x}.data_ptr() == 0 | {x}.is_leaf | {x}.nbytes | {x}.shape | {x}.dtype | hash({x}) == id({x})
    torch.promote_types({x}.dtype, torch.float32) | torch.result_type({x}, 1.5) | {x}.__class__.__name__ | isinstance({x}, torch.Tensor) | len({x}) | list({x}.shape) | torch.broadcast_shapes({x}.shape, (1,))
    {x}.expand_as({x}) | {x}.sum_to_size({x}.shape) | {x}.unflatten(0, (1, -1)) | {x}.dsplit(2) | {x}.hsplit(2) | {x}.vsplit(1) | torch.column_stack([{x}, {x}]) | {x}.rot90() | {x}.renorm(2, 0, 1) | {x}.lerp({x}, 0.3)
    {x}.std_mean() | {x}.aminmax() | {x}.nansum() | {x}.nanmean() | {x}.logdet() | {x}.cov() | {x}.argwhere() | {x}.put(torch.tensor([0]), torch.tensor([1.0])) | {x}.where({x} > 0, 0) | {x}.dist({x})
    torch.vmap(lambda t: t * 2)({x}) | torch.func.grad(lambda t: t.sum())({x}) | torch.utils.checkpoint.checkpoint(lambda t: t * 2, {x}, use_reentrant=False) | torch.cond({x}.sum() > 0, lambda t: t + 1, lambda t: t - 1, ({x},))
"""
FORMS = [form.strip() for form in TEMPLATES.replace("\n", "|").split("|") if form.strip() and "vmap" not in form
         and "torch.cond" not in form]


@step(10)
def unbound(d):
    form = d.rng.choice(FORMS)
    x = d.floating(least=d.pick(0, 1, 2)) if d.chance(0.8) else d.tensor()
    text = form.replace("{x}", x)
    d.result(text, "unbound")


# ---- writes


@step(8)
def write(d):
    x = d.tensor()
    text = d.pick("{x}.mul_({n})", "{x}.add_({n})", "{x}.zero_()", "{x}.fill_({n})", "{x} += {n}", "{x} *= {n}",
                  "{x}[...] = {n}", "{x}[0] = {n}", "{x}[..., -1] = {n}", "{x}.copy_({y})",
                  "{x}.add_({y})", "{x} -= {y}", "{x}[..., 0] += {n}", "{x}.select(0, 0).zero_()",
                  "{x}.view(-1)[0] = {n}", "{x}.T.add_({n})", "{x}.relu_()", "{x}.data.add_({n})",
                  "{x}.detach().mul_({n})", "{x}.narrow(0, 0, 1).copy_({y})", "{x}.reshape(-1)[0] = {n}",
                  "{x}.unsqueeze(0).sub_({n})", "{x}[{x} > 0] = {n}", "{x}.index_fill_(0, torch.tensor([0]), {n})",
                  # fmt: skip
                  "{x}.squeeze().sigmoid_()", "{x}.exponential_()", "{x}.chunk(2)[0].neg_()", "{x}.flatten().abs_()")
    d.step(text.format(x=x, n=d.number(), y=d.partner(x) if "{y}" in text else ""), "write")


@step(5)
def out_argument(d):
    """A call with out=: of the right sizes, of others, of another dtype, a view, an operand."""
    x = d.floating(least=1)
    y = d.partner(x)
    text = d.pick(f"torch.add({x}, {y}", f"torch.mul({x}, {y}", f"torch.exp({x}", f"torch.sum({x}, 0",
                  f"torch.cat([{x}, {x}]", f"torch.matmul({x}, {x}", f"torch.abs({x}", f"torch.clamp({x}, -1, 1",
                  # fmt: skip
                  f"torch.sub({x}, 2", f"torch.mean({x}, -1, keepdim=True", f"torch.stack([{x}, {x}]",
                  f"torch.cumsum({x}, 0", f"torch.where({x} > 0, {x}, {x}")
    probe = d.execute(f"probe = {text})")
    fits = tuple(d.namespace.pop("probe").shape) if probe is None else (2,)
    shape = (0,) if d.chance(0.15) else fits
    target = d.tensor(shape=shape, dtype=name_of(d[x].dtype)) if d.chance(0.85) else d.tensor()
    shared = d[target].untyped_storage().data_ptr() in [d[name].untyped_storage().data_ptr() for name in (x, y)]
    # Where it raises, or is resized under its operands, torch leaves contents as they come.
    if d.execute(f"probe = {text}, out={target}.clone())") is None and (d[target].shape == fits or not shared):
        d.result(f"{text}, out={target})", "out")


# ---- values in Python


@step(7)
def fetch(d):
    x = d.tensor()
    one = scalar_of(d, x)
    number = d.pick(f"{one}.item()", f"float({one})", f"int({one})", f"bool({one} > 0)", f"{x}.tolist()",
                    f"{x}.numel()", f"{one}.is_nonzero()", f"bool({x}.any())", f"bool({x}.isnan().any())",
                    f"list({x})", f"{x}.shape[-1]", f"f'{{{one}.item():.2f}}'")  # fmt: skip
    name = d.result(number, "fetch")
    if name and isinstance(d.namespace.get(name), (int, float)) and d.chance(0.6):
        y = d.floating()
        d.result(f"{y} {d.pick('*', '+', '-')} {name}", "fetched")


@step(3)
def printed(d):
    x = d.tensor()
    d.step(d.pick(f"print({x})", f"print({x}.shape, {x}.dtype)", f"print(repr({x}))",
                  f"print(f'{{{scalar_of(d, x)}}}')", f"print(str({x}).count(','))"), "print")


@step(3)
def noted(d):
    d.step(f"note(log, {d.tensor()})", "note")


def indented(d, many=1):
    """Steps that stand in a block: their lines, and the names that they make. Drawn, they are taken back."""
    before = len(d.steps)
    for _ in range(many):
        simple(d)
    lines = [line for s in d.steps[before:] for line in s.text.split("\n")]
    del d.steps[before:]
    return "\n".join(f"    {line}" for line in lines) or "    pass"


def simple(d):
    x = d.tensor()
    new = d.pick(x, d.fresh())
    d.step(f"{new} = " + d.pick(f"{x} * 2", f"{x} + {x}", f"torch.tanh({x})", f"{x}.clone()", f"{x}.abs()", f"-{x}",
                                f"{x}.sum(0, keepdim=True)", f"{x}.t() if {x}.dim() == 2 else {x}",
                                f"{x} - {x}.mean()"), "simple")


@step(5)
def branch(d):
    """Both ways are drawn; names that only one of them makes are not used later, unless that raises."""
    x = d.tensor()
    one = scalar_of(d, x)
    condition = d.pick(f"{one} > 0", f"{x}.isnan().any()", f"({x} > 0).all()", f"{one} == 0", f"{x}.shape[0] > 2"
                       if d[x].dim() else f"{one} > 1", f"float({one}) < 1", f"not {x}.any()", f"{x}.dim() == 2")
    new = d.fresh()
    y = d.tensor()
    ways = [d.pick(f"{y} * 2", f"{y}.clone()", f"{y} + 1", f"{y}.abs()", f"{y}.t()", f"torch.sigmoid({y})", y,
                   f"{y}.sum()") for _ in range(2)]
    d.step(f"if {condition}:\n    {new} = {ways[0]}\nelse:\n    {new} = {ways[1]}", "branch")


@step(3)
def loop(d):
    x = d.floating()
    y = d.pick(f"{x} * 0.5", f"{x} + 1", f"torch.tanh({x})", f"{x} - {x}.mean()", f"{x}.roll(1)", f"{x} @ {x}",
               f"F.softmax({x}, -1)")
    head = d.pick(f"for _ in range({d.pick(1, 2, 3, 5)}):",
                  f"for i in range(min(4, abs(int({scalar_of(d, x)}.nan_to_num(0, 1, 1))))):",
                  f"for row in list({x})[:3]:\n    log.append(row.shape)\n    ")
    body = f"    {x} = {y}"
    if "while" in head or d.chance(0.2):
        body += f"\n    if {x}.abs().sum() > 100:\n        break"
    d.step(f"{head}\n{body}".replace("\n    \n", "\n"), "loop")


@step(2)
def raised(d):
    x = d.tensor()
    bad = d.pick(f"{x}.view(7, 11, 13)", f"torch.cat([{x}, torch.ones(2, 3, 5)])", f"{x} @ torch.ones(3, 7)",
                 f"{x}.add_('a')", f"{x}[99]", "raise ValueError('x')", f"{x}.sum(9)", f"{x}.item()",
                 # fmt: skip
                 f"F.linear({x}, torch.ones(2, 5, 7))", f"{x}.reshape(-1, 17)", f"{x}.no_such_method()",
                 f"torch.stack([{x}, {x}[None]])", f"{x}.expand(3, 5, 7, 11)", "assert False, 'no'")
    before = simple_text(d)
    error = d.execute(before)
    if error is None:
        d.look()
        after = f"\nfinally:\n    log.append({x}.dim())" if d.chance(0.2) else ""
        text = (f"try:\n    {before}\n    {bad}\nexcept Exception as e:\n"
                f"    log.append((type(e).__name__, str(e))){after}")
        if d.execute(text) is None:
            from .program import Step

            d.steps.append(Step(text, "raised"))
            d.look()


def simple_text(d):
    x = d.tensor()
    return f"{d.fresh()} = {d.pick(f'{x} * 2', f'{x} + 1', f'{x}.clone()', f'{x}.abs()')}"


@step(3)
def forget(d):
    """What nobody holds is never computed."""
    names = [n for n in d.pool if n[0] == "v"]
    if len(names) > 2:
        d.step(f"del {d.rng.choice(names)}", "del")


# ---- NumPy


@step(4)
def numpy(d):
    x = d.tensor()
    form = d.rng.randrange(6)
    if form == 0:
        d.result(f"torch.from_numpy({x}.detach().numpy())", "numpy")
    elif form == 1:
        d.result(f"torch.as_tensor({x}.detach().numpy() * 2)", "numpy")
    elif form == 2:
        d.step(f"a = {x}.detach().numpy()\na[...] = {d.pick('1', '0', '2')}", "numpy")
    elif form == 3:
        d.step(f"log.append(np.asarray({x}.detach()).sum())", "numpy")
    elif form == 4:
        d.result(f"torch.tensor(np.ones({tuple(d[x].shape)}, dtype=np.float32)) + {x}", "numpy")
    else:
        d.result(f"{x} * np.float32(1.5)", "numpy")


# ---- modules


def module(d, text):
    """Its parameters are of the program's floats."""
    text = text if d.floats == "torch.float32" else f"{text}.to({d.floats})"
    d.modules.append(text)
    name = f"m{len(d.modules) - 1}"
    with d.eager():
        exec(f"{name} = {text}", d.namespace)  # noqa: S102
    return name


@step(9)
def layer(d):
    """A module of torch.nn behind a tensor that fits it."""
    x = d.tensor(dtype=d.floats, least=1)
    shape = d[x].shape
    last = shape[-1]
    texts = [f"torch.nn.Linear({last}, {d.pick(1, 3, 4, 8)}, bias={d.flag()})", f"torch.nn.LayerNorm({last})",
             "torch.nn.ReLU()", "torch.nn.GELU()", "torch.nn.Sigmoid()", "torch.nn.Dropout(0.5).eval()",
             "torch.nn.Dropout(0.3)", "torch.nn.Tanh()", "torch.nn.SiLU()", "torch.nn.Softmax(-1)",
             "torch.nn.LeakyReLU()", "torch.nn.ReLU6()", "torch.nn.Hardswish()", "torch.nn.Mish()",
             "torch.nn.Identity()",
             "torch.nn.ReLU(inplace=True)", "torch.nn.Flatten()", "torch.nn.PReLU()", f"torch.nn.RMSNorm({last})",
             "torch.nn.Softplus()", "torch.nn.Hardtanh()", "torch.nn.GLU()", "torch.nn.Hardsigmoid()",
             f"torch.nn.Sequential(torch.nn.Linear({last}, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))"]  # fmt: skip
    if len(shape) == 4:
        c = shape[1]
        images = [f"torch.nn.Conv2d({c}, {d.pick(1, 4)}, {d.pick(1, 3)}, padding={d.pick(0, 1)})",
                  f"torch.nn.BatchNorm2d({c}).eval()", f"torch.nn.BatchNorm2d({c})", "torch.nn.MaxPool2d(2)",
                  "torch.nn.AvgPool2d(2)", "torch.nn.AdaptiveAvgPool2d(1)", f"torch.nn.GroupNorm(1, {c})",
                  f"torch.nn.ConvTranspose2d({c}, 2, 2)", "torch.nn.Upsample(scale_factor=2)",
                  "torch.nn.Dropout2d(0.4)",
                  # fmt: skip
                  f"torch.nn.Sequential(torch.nn.Conv2d({c}, 4, 1), torch.nn.BatchNorm2d(4).eval(), torch.nn.ReLU())",
                  f"torch.nn.InstanceNorm2d({c})", "torch.nn.PixelUnshuffle(1)"]
        texts = images if d.chance(0.8) else texts
    elif len(shape) == 3 and d.chance(0.5):
        c, e = shape[1], last
        texts = [f"torch.nn.Conv1d({c}, {d.pick(1, 4)}, {d.pick(1, 2)})", f"torch.nn.BatchNorm1d({c}).eval()",
                 "torch.nn.MaxPool1d(2)", "torch.nn.AvgPool1d(2)", f"torch.nn.LSTM({e}, 4)",
                 f"torch.nn.GRU({e}, 3, batch_first=True)", f"torch.nn.RNN({e}, 3)",
                 f"torch.nn.MultiheadAttention({e}, 1)", "torch.nn.AdaptiveAvgPool1d(2)",
                 # fmt: skip
                 f"torch.nn.TransformerEncoderLayer({e}, 1, 8, batch_first=True).eval()",
                 f"torch.nn.LSTM({e}, 2, 2, bidirectional=True)"]
    elif len(shape) == 2 and d.chance(0.4):
        texts = [f"torch.nn.BatchNorm1d({last}).eval()", f"torch.nn.LSTMCell({last}, 3)",
                 f"torch.nn.GRUCell({last}, 3)", f"torch.nn.RNNCell({last}, 3)", f"torch.nn.BatchNorm1d({last})"]
    try:
        name = module(d, d.rng.choice(texts))
    except Exception:  # noqa: BLE001 (of size 0, say: the module itself is refused)
        d.modules.pop()
        return
    many = f"{x}, {x}, {x}" if "Multihead" in d.modules[-1] else x
    result = d.result(f"{name}({many})", "layer")
    value = d.namespace.get(result)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], tuple):
        d.step(f"{d.fresh()}, ({d.fresh()}, {d.fresh()}) = {result}", "unpack")


@step(2)
def embedded(d):
    rows, width = d.pick(2, 5, 9), d.pick(1, 4, 8)
    name = module(d, f"torch.nn.Embedding({rows}, {width}{d.pick('', ', padding_idx=0')})")
    d.result(f"{name}({vocabulary.index_for(d, rows, d.shape(0, 2))})", "layer")


# ---- gradients, modes, random numbers


@step(4)
def gradient(d):
    if d.mode != "grad":
        return
    wanting = [n for n, t in d.pool.items() if t.requires_grad]
    if not wanting or d.chance(0.4):
        if d.leaves:
            leaf = d.input(d.shape(1, 3), d.floats, plain=True, grad=True)
        else:
            leaf = d.result(f"{d.tensor(dtype=d.floats)}.detach().clone().requires_grad_()", "gradient")
        d.result(f"{leaf} * 2 + {leaf}.sum()", "gradient")
        return
    x = d.rng.choice(wanting)
    form = d.rng.randrange(7)
    if form > 4:  # what comes in lies in any way
        given = d.tensor(shape=d[x].shape, dtype=d.like(x))
        d.step(f"{x}.backward({given}.detach(){d.pick('', '.mT.contiguous().mT') if d[x].dim() > 1 else ''}, "
               "retain_graph=True)", "backward")
    elif form == 0:
        d.step(f"{x}.sum().backward(retain_graph=True)", "backward")
    elif form == 1:
        d.step(f"({x} * {x}).mean().backward(retain_graph=True)", "backward")
    elif form == 2:
        leaves = [n for n, t in d.pool.items() if t.requires_grad and t.is_leaf]
        if leaves:
            d.result(f"torch.autograd.grad({x}.sum(), {d.rng.choice(leaves)}, retain_graph=True, allow_unused=True)[0]",
                     "grad")
    elif form == 3:
        d.result(f"{x}.detach() * 2", "detach")
    else:
        d.step(f"log.append({x}.grad_fn is None)", "grad_fn")


@step(3)
def trained(d):
    """A leaf, a loss and its gradient, wherever gradients were."""
    if d.mode == "inference":
        return
    x, leaf, loss = d.tensor(dtype=d.floats), d.fresh(), d.fresh()
    y = d.partner(x, d.floats)
    text = d.pick("{w} * {y}", "({w} - {y}) ** 2", "F.softmax({w}, -1)", "F.gelu({w} + {y})", "{w} @ {w}.mT",
                  "F.linear({w}, {w})", "{w}[..., :1] * 2", "F.layer_norm({w}, {w}.shape[-1:])",
                  "{w}.relu() + {w}.sigmoid()",
                  # fmt: skip
                  "{w}.exp().log_()", "F.mse_loss({w}, {y}, reduction='none')", "torch.where({y} > 0, {w}, {y})",
                  "{w}.cumsum(0)", "{w}.clamp(-1, 1)", "torch.cat([{w}, {w} * {w}])")
    parameters = [f"m{k}" for k in range(len(d.modules)) if d.chance(0.5)]
    module = d.pick(*parameters) if parameters and d.chance(0.6) else ""
    end = d.pick(f"{loss}.backward()", f"{leaf}.grad, = torch.autograd.grad({loss}, {leaf})",
                 f"{loss}.backward()\n    with torch.no_grad():\n        {leaf} -= 0.5 * {leaf}.grad")
    new = d.fresh()
    d.step(f"with torch.enable_grad():\n    {leaf} = {x}.detach().clone().requires_grad_()\n    {loss} = "
           f"{module}({text.format(w=leaf, y=y)}).sum()\n    {end}\n{new} = {leaf}.grad", "trained")


@step(4)
def section(d):
    """A few steps in another mode."""
    mode = d.pick("torch.no_grad()", "torch.no_grad()", "torch.enable_grad()", "torch.inference_mode()",
                  "torch.set_grad_enabled(False)", "torch.autocast('cpu')", "torch.inference_mode(False)")
    x = d.floating()
    new = d.fresh()
    made = d.pick(f"{x} * 2", f"{x} + {x}", f"{x}.clone()", f"torch.tanh({x})", f"{x} @ {x}", f"{x}.sum()", f"{x}[:1]")
    d.step(f"with {mode}:\n    {new} = {made}\n    log.append({new}.requires_grad)", "section")


@step(5)
def random_numbers(d):
    x = d.tensor()
    shape = tuple(d[x].shape)
    text = d.pick(f"torch.rand({shape})", f"torch.randn({shape})", f"torch.randn_like({x})", f"torch.rand_like({x})",
                  f"torch.randint(0, 5, {shape})", f"torch.randperm({d.pick(1, 3, 9)})",
                  f"torch.bernoulli({x}.sigmoid())", f"F.dropout({x}, 0.5)", f"{x}.normal_()", f"{x}.uniform_()",
                  f"{x}.bernoulli_(0.4)", f"torch.normal(0.0, 1.0, {shape})",
                  f"torch.multinomial(torch.ones(5), 3)", f"{x} + torch.randn({shape})",
                  f"F.dropout({x} * 2, 0.2, True)", f"torch.empty({shape}).uniform_()", f"F.dropout2d({x}, 0.5)",
                  # fmt: skip
                  f"F.alpha_dropout({x}, 0.3, True)",
                  f"torch.rand({shape}, generator=torch.Generator().manual_seed(3))", f"{x}.random_(5)")
    d.result(text, "random")
    if d.chance(0.15):
        d.step(f"torch.manual_seed({d.rng.randrange(100)})", "seed")

