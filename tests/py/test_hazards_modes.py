"""Gradients, random numbers, hooks, autograd.Function, torch.func, autocast, modes, subclasses, tracing and
compilation: around and inside."""

import copy

import dycl
import pytest
import torch
import torch.nn.functional as F
from same import Programs, same
from torch import nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


program = Programs()


@pytest.mark.parametrize("function, make, options", program.cases)
def test_modes(function, make, options):
    same(function, make, **options)


# ---- random numbers --------------------------------------------------------------------------------------------------


@program()
def random_numbers_in_order(x, y):
    a = torch.rand(3)
    b = F.dropout(x + y, 0.5)
    c = torch.randn_like(b)
    d = nn.Dropout(0.3)(b)
    e = (x + y).bernoulli()
    torch.manual_seed(int(a[0] * 100))
    f = torch.empty(4).normal_()
    return (a, b, c, d, e, f, torch.rand(2), torch.randperm(5), torch.multinomial((x + y).softmax(-1), 2),
            (x + 1).uniform_(), F.gumbel_softmax(x + y))


@program()
def generators_of_their_own(x, y):
    g = torch.Generator().manual_seed(3)
    a = torch.rand(3, generator=g)
    state = torch.get_rng_state()
    b = torch.rand(2) + x[0, :2]
    torch.set_rng_state(state)
    c = torch.rand(2) + x[0, :2]
    with torch.random.fork_rng():
        torch.rand(3)
    return a, b, c, torch.rand(1), torch.rand(2, generator=g)


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.d, self.b = nn.Linear(6, 6), nn.Dropout(0.5), nn.BatchNorm1d(6)

    def forward(self, x):
        return self.b(self.d(self.a(x).relu()))


@program(lambda: (Dropping().train().requires_grad_(False), torch.randn(4, 6)), like="matmul",
         accelerate=lambda model, x: model)
def training_mode_without_gradients(model, x):
    return model(x)


@program(lambda: (Dropping(), torch.randn(4, 6)), like="matmul", accelerate=lambda model, x: model)
def training_mode_switched(model, x):
    return model.train()(x), model.eval()(x), model.train()(x)


# ---- grad modes ------------------------------------------------------------------------------------------------------


@program()
def grad_modes_inside(x, y):
    out = []
    for mode in (torch.no_grad(), torch.enable_grad(), torch.inference_mode(), torch.inference_mode(False),
                 torch.set_grad_enabled(True), torch.set_grad_enabled(False)):
        a = x + 1
        with mode:
            b = a * 2
            c = x.view(-1)
            out += [a, b, c, b.is_inference(), torch.is_grad_enabled()]
        out += [b + a, c + 0, c]
    return out


@program(grad=True)
def grad_modes_inside_a_call_with_gradients(x, y):
    out = []
    for mode in (torch.no_grad(), torch.enable_grad(), torch.inference_mode()):
        a = x + 1
        with mode:
            b = a * 2
            out += [a, b, b.is_inference()]
        out += [a + 3]
    return out


def test_inference_mode_around():
    @dycl.accelerate
    def program(x, w):
        a = x * 2
        v = a.view(-1)
        with torch.inference_mode(False):
            c = w * 2
        return a, v, x, c, (a + 1).is_inference()

    w = torch.ones(3)
    for _ in range(3):
        with torch.inference_mode():
            a, v, x, c, inside = program(torch.ones(2, 3), w)
        assert a.is_inference() and v.is_inference() and x.is_inference() and not c.is_inference() and inside
    assert dycl.stats(program)["recorded"] >= 6
    with torch.inference_mode():
        x = torch.ones(2, 3)
    with torch.no_grad():
        assert not program(x, w)[0].is_inference()


def test_results_of_a_no_grad_region_can_be_trained():
    features = dycl.accelerate(lambda x: (x * 2).relu())
    head = nn.Linear(6, 2)
    with torch.no_grad():
        h = features(torch.randn(4, 6))
    loss = head(h).sum()
    loss.backward()
    assert head.weight.grad is not None and torch.allclose(head.weight.grad, h.sum(0).expand(2, 6))


def mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))


def train(model, x, steps=3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        return losses, model(x), model(x)


@program(lambda: (mlp(), torch.randn(4, 6)), grad=True, like="matmul", accelerate=lambda model, x: model, calls=2)
def training_then_inference(model, x):
    return train(model, x)


@program(lambda: (mlp(), torch.randn(4, 6)), grad=True, like="matmul", calls=2)
def training_step_inside(model, x):
    return train(model, x, 2)


def frozen():
    model = mlp()
    model[0].requires_grad_(False)
    return model, torch.randn(4, 6)


@program(frozen, grad=True, like="matmul", accelerate=lambda model, x: model)
def frozen_backbone_with_a_head(model, x):
    loss = model(x).sum()
    loss.backward()
    return loss


@program(lambda: (torch.randn(4, 6, requires_grad=True), torch.randn(4, 6)), grad=True, recorded=None)
def input_requires_grad(x, y):
    a = (x * y).sum()
    (g,) = torch.autograd.grad(a, x)
    return a, g


@program(lambda: ([torch.randn(4, 6, requires_grad=True)], torch.randn(4, 6)), grad=True)
def nested_input_requires_grad(xs, y):
    b = y * 2
    a = (xs[0] * b).sum() + b.sum()
    a.backward()
    return a, b, xs[0].grad


@program(lambda: (torch.randn(4, 6, requires_grad=True), torch.randn(4, 6)))
def enable_grad_inside_no_grad(x, y):
    a = x * y
    with torch.enable_grad():
        b = (x * y).sum()
        c = (a * 2).sum()
        b.backward()
    return a, b, c, x.grad, b.requires_grad, c.requires_grad, (x + 1).requires_grad


@program(lambda: (torch.randn(4, 6, requires_grad=True), torch.randn(4, 6)))
def same_argument_in_both_grad_modes(x, y):
    a = x + 1
    with torch.enable_grad():
        b = x + 1
    c = x + 1
    return a, b, c


@program(grad=True)
def result_becomes_a_leaf(x, y):
    a = (x + y).requires_grad_()
    b = (a * 2).sum()
    b.backward()
    c = (x - y).detach().clone().requires_grad_(True)
    (c * a).sum().backward()
    return a, a.grad, b, c.grad, a.is_leaf


@program(grad=True)
def tensor_hooks(x, y):
    seen = []
    a = (x + y).requires_grad_()
    a.register_hook(lambda g: seen.append(g * 2))
    b = a * 3
    b.register_hook(lambda g: g + 1)
    b.retain_grad()
    b.sum().backward()
    return seen, a.grad, b.grad


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * scale

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g * ctx.scale, None


@program()
def autograd_function_without_gradients(x, y):
    a = x + y
    return Square.apply(a, 3), Square.apply(x, 2) + a


@program(grad=True)
def autograd_function_with_gradients(x, y):
    a = (x + y).requires_grad_()
    b = Square.apply(a, 3)
    c = Square.apply(b * y, 1)
    c.sum().backward()
    return b, c, a.grad


@program(grad=True, like="matmul", versions=False)
def autograd_function_saves_a_result(x, y):
    w = torch.ones(6, requires_grad=True)
    a = x + y
    b = (w * a).sum()
    c = F.linear(a.t() @ a, w[None].expand(6, 6)).sum()
    del a
    (b + c).backward()
    return b, c, w.grad


@program(grad=True)
def checkpointing(x, y):
    from torch.utils.checkpoint import checkpoint

    w = torch.ones(6, requires_grad=True)
    a = checkpoint(lambda t: (t * w).exp(), x + y, use_reentrant=False)
    a.sum().backward()
    return a, w.grad


# ---- torch.func ------------------------------------------------------------------------------------------------------


@program()
def functional_transforms(x, y):
    a = x + y
    f = lambda t: (t * a[0]).sin().sum()  # noqa: E731
    return torch.func.grad(f)(a[1]), torch.func.vmap(f)(a), torch.vmap(torch.dot)(a, y), torch.func.jacrev(
        lambda t: t * t)(a[0]), torch.func.jvp(f, (a[0],), (y[0],)), torch.func.vmap(torch.func.grad(f))(a), a * 2


@program()
def transformed_results_used_later(x, y):
    a = x + y
    kept = []

    def f(t):
        kept.append(a * 2 + t.shape[0])
        return (t * kept[-1]).sum()

    g = torch.func.grad(f)(x)
    b = a + 1
    return (g, b, len(kept), torch.func.functional_call(nn.Linear(6, 6).requires_grad_(False), {"bias": a[0]},
                                                        (a,)).shape)


@program()
def higher_order_operators(x, y):
    a = x + y
    b = torch.cond(a.sum() > 0, lambda t: t * 2, lambda t: t * 3, (a,))
    return b, a, b + 1


# ---- autocast --------------------------------------------------------------------------------------------------------


@program(like="matmul")
def autocast_inside(x, y):
    a = x + y
    with torch.autocast("cpu", torch.bfloat16):
        b = a @ y.t()
        c = F.linear(a, y)
        d = (b + 1).softmax(-1)
    return a, b.float().round(), b.dtype, c.dtype, d.dtype, a @ y.t()


def test_autocast_around():
    f = dycl.accelerate(lambda x: x @ x.t())
    x = torch.randn(4, 6)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        got = f(x)
    assert got.dtype == torch.bfloat16 and dycl.stats(f)["plain_mode"] == 1


# ---- modes of the program's own --------------------------------------------------------------------------------------


class Log(TorchFunctionMode):
    def __init__(self, log):
        self.log = log

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", str(function))
        self.log.append(name)
        result = function(*args, **(kwargs or {}))
        return result + 1 if name in ("exp", "relu") else result


class LogDispatch(TorchDispatchMode):
    def __init__(self, log):
        super().__init__()
        self.log = log

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.log.append(str(function))
        return function(*args, **(kwargs or {}))


@program()
def function_mode_inside(x, y):
    log = []
    a = x + y
    with Log(log):
        b = a.exp()
        c = torch.relu(x)
        d = F.gelu(a) * 2
        e = nn.Linear(6, 2).requires_grad_(False)(a).shape
    f = a.exp()
    return a, b, c, d, e, f, [n for n in log if n in ("exp", "relu", "gelu", "linear", "mul")]


@program()
def dispatch_mode_inside(x, y):
    log = []
    a = x + y
    with LogDispatch(log):
        b = a.exp()
        c = torch.relu(x) * b
        z = torch.zeros(2)
    f = a.exp()
    return a, b, c, f, z, log


@program()
def forked_in_torchscript(x, y):
    a = x * 2 + y
    b = torch.jit.wait(torch.jit.fork(torch.sin, a))
    return a, b, b * a


@program(lambda: (torch.randn(4, 6), torch.randn(6, 6, requires_grad=True)), like="matmul", grad=True)
def dispatch_mode_with_a_history_pending(x, y):
    log = []
    a = x @ y
    b, c = a * 2, a.sin()
    v = b[0]
    with LogDispatch(log):
        d = b + c
        e = (v * 2).detach()
    return a, b, c, v, d, e, d.exp(), log


@program()
def function_mode_never_left(x, y):
    mode = Log([])
    before = torch._C._len_torch_function_stack()
    mode.__enter__()
    a = x.exp()
    depth = torch._C._len_torch_function_stack() - before
    mode.__exit__(None, None, None)
    return a, x.exp(), depth


def test_function_mode_that_is_entered_inside_and_left_outside():
    log = []
    mode = Log(log)

    @dycl.accelerate
    def program(x):
        a = x + 1
        mode.__enter__()
        return a

    x = torch.ones(2)
    with torch.no_grad():
        a = program(x)
        try:
            assert torch._C._len_torch_function_stack() == 1 and torch.equal(torch.relu(a), a + 1)
        finally:
            mode.__exit__(None, None, None)
    assert type(a) is torch.Tensor and "relu" in log


@program()
def depth_of_the_mode_stack_while_recording_ends(x, y):
    """Who compares it before and after, as torch's own TestCase does, sees no other depth."""
    before, depths, results = torch._C._len_torch_function_stack(), [], []

    def note(result):
        depths.append(torch._C._len_torch_function_stack() - before)
        results.append(result)

    note(x + y)
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        note(x * 2)
    with torch._C.DisableTorchFunction():
        note(x - y)
    torch.set_default_dtype(torch.float16)
    try:
        note(x / 2)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.enable_grad():
        note((y.clone().requires_grad_() * x).detach())
    with forward_ad.dual_level():
        note(forward_ad.unpack_dual(forward_ad.make_dual(x, y) * 3).tangent)
    note(x.exp())
    note((x + y).relu())
    return depths, results


@pytest.mark.parametrize("kind", [Log, LogDispatch])
def test_mode_around(kind):
    f = dycl.accelerate(lambda x: (x + 1).exp())
    x, log, want = torch.ones(3), [], []
    with torch.no_grad():
        with kind(want):
            a = (x + 1).exp()
        with kind(log):
            b = f(x)
    assert torch.equal(a, b) and log == want and log and dycl.stats(f)["plain_mode"] == 1


@program()
def default_device_and_dtype_inside(x, y):
    a = x + y
    with torch.device("cpu"):
        b = torch.zeros(2) + a[0, :2]
    with torch.device("meta"):
        c = torch.zeros(2).device.type
    torch.set_default_dtype(torch.float64)
    try:
        d = torch.arange(3) / 2 + torch.ones(3)
        e = a + torch.ones(6)
    finally:
        torch.set_default_dtype(torch.float32)
    return a, b, c, d, e, torch.arange(3) / 2


@program()
def default_device_that_is_set(x, y):
    a = x + y
    torch.set_default_device("meta")
    try:
        made = torch.zeros(2), torch.tensor([1.0]), torch.arange(3), torch.nn.Linear(2, 2).weight
        b = a * 2 + torch.ones(6, device="cpu")
        devices = [t.device.type for t in (*made, a + 1, torch.zeros_like(a), a.new_ones(2), a[0])]
        torch.set_default_device("cpu")
        c = torch.ones(6) + b
    finally:
        torch.set_default_device(None)
    return a, b, c, devices, torch.zeros(2) + a[0, :2]


def queries():
    return torch.randn(2, 3, 5, 4), torch.randn(2, 5, 3, 4).transpose(1, 2)


@program(queries, like="matmul")
def kernels_of_attention(x, y):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    outcomes, seen = [], torch.ones(5, 5).tril() > 0
    for kernels in ([SDPBackend.MATH], [SDPBackend.FLASH_ATTENTION], [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        q, k = x * 2, y * 1
        before = torch.nn.functional.scaled_dot_product_attention(q, k, k)
        with sdpa_kernel(kernels):
            for operands, options in (((q, k, k), {}), ((k, k, k), {"is_causal": True}), ((q, k, k),
                                      {"attn_mask": seen}), ((q[0], k[0], k[0]), {}), ((q, k, k[..., :2]), {})):
                try:
                    outcomes.append(torch.nn.functional.scaled_dot_product_attention(*operands, **options))
                except RuntimeError as error:
                    outcomes.append(str(error))
        outcomes += [before, torch.nn.functional.scaled_dot_product_attention(k, q, k)]
    return outcomes


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x, y * 2

    @staticmethod
    def backward(ctx, gradient, other):
        return gradient * 2, other * 2


class Added(torch.autograd.Function):
    @staticmethod
    def forward(x, number):
        return x.add_(number)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


@program()
def functions_that_write(x, y):
    a = x + y
    row = a[0]
    b, c = Doubled.apply(a, x * 1)
    d = Added.apply(c * 3, 2.0)
    return a, row, b, c, d, b is a


@program()
def sizes_that_are_tensors(x, y):
    outcomes, sizes = [], torch.tensor(x.shape).flip(0) * 1
    for t in (x, x * 1):
        for call in (lambda t, s: t.reshape(s), lambda t, s: t.expand(s), lambda t, s: t.permute(s), lambda t, s:
                     t.repeat(s), lambda t, s: t.tile(s), lambda t, s: t.flip(s), lambda t, s: t.new_zeros(s)):
            try:
                outcomes.append(call(t, sizes * 1))
            except TypeError as error:
                outcomes.append(str(error))
    return outcomes


# ---- subclasses ------------------------------------------------------------------------------------------------------


class Mine(torch.Tensor):
    pass


class Counting(torch.Tensor):
    calls = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.calls.append(getattr(function, "__name__", str(function)))
        return super().__torch_function__(function, types, args, kwargs or {})


class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        plain = [a.inner if isinstance(a, Wrapped) else a for a in args]
        return cls(function(*plain, **(kwargs or {})))

    def __repr__(self):
        return "Wrapped"


@program(lambda: (torch.randn(4, 6).as_subclass(Mine), torch.randn(4, 6)))
def subclass_argument(x, y):
    a = y * 2
    b = x + a
    return (type(b).__name__, b.as_subclass(torch.Tensor), a, type(a @ x.t()).__name__, type(F.relu(x)).__name__,
            type(torch.cat([a, x])).__name__)


@program()
def class_assigned(x, y):
    a, b, c = x + y, x * y, x - y
    view, a.tag, identity, refusals = a.view(-1), 1, id(a), []
    c.sum().item()
    for t in (a, b, c):
        t.__class__ = Mine
    for other in (int, 3):
        try:
            (x * 1).__class__ = other
        except TypeError as error:
            refusals.append(str(error))
    d = a + y
    return (type(a) is Mine, type(b) is Mine, type(c) is Mine, type(d) is Mine, a.tag, id(a) == identity, view,
            view._base is a, [t.as_subclass(torch.Tensor) for t in (a, b, c, d)], refusals)


@program()
def class_is_read(x, y):
    a, b = x + y, (x * y).sum()
    b.item()
    made = a.__class__([1.0, 2.0])
    return a.__class__ is torch.Tensor, b.__class__ is torch.Tensor, isinstance(a, a.__class__), made, \
        isinstance(a, torch.nn.Parameter), a.__class__.__name__, copy.copy(a), copy.deepcopy(b)


@program(lambda: (torch.randn(4, 6).as_subclass(Counting), torch.randn(4, 6)))
def counting_subclass(x, y):
    Counting.calls.clear()
    a = y * 2
    b = a + x
    c = torch.where(b > 0, a, b)
    return Counting.calls[:], b.as_subclass(torch.Tensor), c.as_subclass(torch.Tensor), a


@program()
def wrapper_subclass_made_inside(x, y):
    a = x + y
    w = Wrapped(a)
    b = w * 2
    c = torch.exp(w) + a
    a.add_(1)
    return b.inner, c.inner, w.inner, w.inner is a, type(c).__name__


@program(lambda: (Wrapped(torch.randn(4, 6)), torch.randn(4, 6)))
def wrapper_subclass_argument(x, y):
    a = y * 2
    return (x + a).inner, (a * x).inner, a


class MyParameter(nn.Parameter):
    pass


class WithSubclass(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.linear.weight = MyParameter(torch.randn(6, 6))
        self.mine = nn.Parameter(torch.randn(6).as_subclass(Mine))

    def forward(self, x):
        h = self.linear(x * 2)
        return h.as_subclass(torch.Tensor), type(h).__name__, type(h + self.mine).__name__


@program(lambda: (WithSubclass(), torch.randn(4, 6)), like="matmul", accelerate=lambda model, x: model)
def subclass_parameters(model, x):
    return model(x)


# ---- hooks -----------------------------------------------------------------------------------------------------------


@program(lambda: (mlp(), torch.randn(4, 6)), like="matmul", accelerate=lambda model, x: model)
def module_hooks(model, x):
    seen = []
    handles = [
        model.register_forward_pre_hook(lambda m, a: (a[0] * 2,)),
        model[1].register_forward_hook(lambda m, a, r: r + 1),
        model[0].register_forward_pre_hook(lambda m, a: seen.append(a[0].sum())),
        model[3].register_forward_hook(lambda m, a, k, r: seen.append((len(a), k, r.mean())), with_kwargs=True),
        nn.modules.module.register_module_forward_hook(lambda m, a, r: seen.append(type(m).__name__)),
    ]
    a = model(x)
    for h in handles:
        h.remove()
    return a, model(x), seen


@program(lambda: (mlp(), torch.randn(4, 6)), grad=True, like="matmul", recorded=None, accelerate=lambda model, x: model)
def backward_hooks(model, x):
    seen = []
    handles = [model[0].register_full_backward_hook(lambda m, i, o: seen.append(o[0].sum())),
               model[2].weight.register_hook(lambda g: g * 2)]
    model.zero_grad()
    model(x).sum().backward()
    for h in handles:
        h.remove()
    return seen, [p.grad for p in model.parameters()]


# ---- tracing, export, compilation ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traced_model():
    torch.manual_seed(1)
    return mlp().eval().requires_grad_(False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("order", ["on top", "on top, after calls"])
@pytest.mark.parametrize("how", ["jit.trace", "fx", "compile", "compile fullgraph", "export"])
def test_tracing_of_an_accelerated_model(how, order, traced_model):
    x = torch.randn(4, 6)
    want = traced_model(x)
    model = dycl.accelerate(copy.deepcopy(traced_model))
    if order != "on top":
        torch.testing.assert_close(model(x), want)
    with torch.no_grad():
        if how == "jit.trace":
            got = torch.jit.trace(model, x)
            assert "linear" in str(got.inlined_graph) or "addmm" in str(got.inlined_graph)
        elif how == "fx":
            got = torch.fx.symbolic_trace(model)
            assert [n.op for n in got.graph.nodes].count("call_module") == 4
        elif how == "export":
            got = torch.export.export(model, (x,)).module()
        else:
            torch._dynamo.reset()
            got = torch.compile(model, backend="eager", fullgraph=how.endswith("fullgraph"))
        for _ in range(3):
            torch.testing.assert_close(got(x), want)
        torch.testing.assert_close(model(x), want)
        torch.testing.assert_close(model(x * 2), traced_model(x * 2))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["jit.trace", "jit.script", "fx", "compile", "export"])
def test_traced_code_inside_an_accelerated_function(how, traced_model):
    x = torch.randn(4, 6)
    want = traced_model(x * 2) + 1
    with torch.no_grad():
        if how == "jit.trace":
            inner = torch.jit.trace(traced_model, x)
        elif how == "jit.script":
            inner = torch.jit.script(traced_model)
        elif how == "fx":
            inner = torch.fx.symbolic_trace(traced_model)
        elif how == "export":
            inner = torch.export.export(traced_model, (x,)).module()
        else:
            torch._dynamo.reset()
            inner = torch.compile(traced_model, backend="eager")

        @dycl.accelerate
        def program(x):
            a = x * 2
            b = inner(a)
            return b + 1, a

        for _ in range(3):
            got, a = program(x)
            torch.testing.assert_close(got, want)
            torch.testing.assert_close(a, x * 2)
            assert type(got) is type(a) is torch.Tensor
    assert dycl.stats(program)["recorded"] >= 3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["jit.trace", "fx", "compile"])
def test_tracing_inside_a_region(how, traced_model):
    @dycl.accelerate
    def program(x):
        a = x * 2
        if how == "jit.trace":
            inner = torch.jit.trace(traced_model, a)
        elif how == "fx":
            inner = torch.fx.symbolic_trace(traced_model)
        else:
            torch._dynamo.reset()
            inner = torch.compile(traced_model, backend="eager")
        return inner(a) + a.sum(), a

    with torch.no_grad():
        x = torch.randn(4, 6)
        for _ in range(2):
            torch.testing.assert_close(program(x)[0], traced_model(x * 2) + (x * 2).sum())


@pytest.mark.filterwarnings("ignore")
def test_stock_modules_are_recorded_again_after_a_trace():
    model = dycl.accelerate(mlp().eval().requires_grad_(False))
    torch.fx.symbolic_trace(mlp())
    with torch.no_grad():
        x = torch.randn(4, 6)
        model(x)
        before = dycl.stats(model)
        model(x)
    after = dycl.stats(model)
    assert after["torch"] == before["torch"] == 0 and after["recorded"] - before["recorded"] == 4


@pytest.mark.filterwarnings("ignore")
def test_compiled_function_that_calls_accelerated_code():
    inner = dycl.accelerate(lambda x: (x * 2).relu())
    torch._dynamo.reset()
    f = torch.compile(lambda x: inner(x + 1) - 1, backend="eager")
    with torch.no_grad():
        x = torch.randn(4, 6)
        for _ in range(3):
            torch.testing.assert_close(f(x), ((x + 1) * 2).relu() - 1)
