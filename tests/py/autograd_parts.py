"""Parts of models that use autograd in the ways its documentation names: what test_autograd_programs.py builds its
models of. Each takes and gives (rows, WIDTH) in float32. What a part sees it notes."""

import contextlib
import copy
import pickle
import re
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

WIDTH = 6
NOTES = []


def text_of(error):
    """Names of nodes are not compared here."""
    text = re.sub(r", which is output \d+ of \w+,", "", str(error)).split("\nException raised")[0]
    text = re.sub(r"\b\w*Backward\w*\b", "a node", text).split(" Traceback of forward call")[0]
    text = text.split("No forward pass information")[0]
    return re.sub(r"0x[0-9a-f]+", "an address", text)


def tell(t):
    """What a program can tell of a tensor."""
    if not isinstance(t, torch.Tensor):
        return t
    if torch._C._functorch.is_functorch_wrapped_tensor(t):
        return "of a transform", t.dtype, tuple(t.shape)
    if t.layout != torch.strided:
        return ("layout", str(t.layout), t.to_dense().detach().clone())
    return (type(t).__name__, t.dtype, tuple(t.shape), t.stride(), t.requires_grad, t.is_leaf, t.grad_fn is None,
            None if t.is_inference() else t._version, t.is_inference(), t.detach().clone())


def note_flow(what, *things):
    """Gradients on their way: where they lie, and what else shares it, is each formula's own affair."""
    told = [tell(t) for t in things]
    NOTES.append((what, *[t[:3] + t[4:7] + t[9:] if isinstance(t, tuple) and len(t) == 10 else t for t in told]))


def tell_gradient(t):
    """The same without the version: how often torch's engine wrote into a sum that nobody had seen."""
    told = tell(t)
    return told[:7] + told[8:] if isinstance(told, tuple) and len(told) == 10 else told


def note_gradients(what, *things):
    NOTES.append((what, *[tell_gradient(t) for t in things]))


def note(what, *things):
    NOTES.append((what, *[tell(t) for t in things]))


@contextlib.contextmanager
def errors(what):
    """An error is noted."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        note(what, type(error).__name__, text_of(error))


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        note("forward of a function", x.requires_grad, torch.is_grad_enabled())
        return x * 2

    @staticmethod
    def backward(ctx, g):
        note_flow("backward of a function", g)
        return g * 2 + ctx.saved_tensors[0] * 0.1


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(0.5)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g * 0.5


class Two(torch.autograd.Function):
    """The second result is not differentiable; the first is saved."""

    @staticmethod
    def forward(ctx, x, scale):
        y, mask = torch.tanh(x * scale), x > 0
        ctx.mark_non_differentiable(mask)
        ctx.save_for_backward(y)
        ctx.scale = scale
        return y, mask

    @staticmethod
    def backward(ctx, g, unused):
        y, = ctx.saved_tensors
        note("needs", ctx.needs_input_grad, unused)
        return g * (1 - y * y) * ctx.scale, None


class New(torch.autograd.Function):
    """In the newer style, with setup_context."""

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0].cos()


class Call(nn.Module):
    """A function of a linear layer's result."""

    def __init__(self, function):
        super().__init__()
        self.function, self.lin = function, nn.Linear(WIDTH, WIDTH)
        self.other = nn.Parameter(torch.randn(WIDTH) * 0.3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        return self.function(self, self.lin(x), x)


FUNCTIONS, MODULES, IMAGES, CHOICES = {}, {}, [], []


def part(function):
    FUNCTIONS[function.__name__] = function
    return function


def module(function):
    MODULES[function.__name__] = function
    return function


def image_part(function):
    FUNCTIONS[function.__name__] = function
    IMAGES.append(function.__name__)
    return function


def choosing_part(function):
    FUNCTIONS[function.__name__] = function
    CHOICES.append(function.__name__)
    return function


@part
def plain(self, h, x):
    return torch.tanh(h) * self.other


@part
def relu_in_place(self, h, x):
    return F.relu(h, inplace=True) + self.other


@part
def sigmoid_in_place(self, h, x):
    y = h * 1.5
    y.sigmoid_()
    y += self.other
    return y


@part
def saved_then_written(self, h, x):
    y = h.exp()
    y.mul_(0.5)
    return y


@part
def view_written(self, h, x):
    y = h + 1
    y[:, ::2] *= 0.5
    y.view(-1)[3:].add_(self.other[0])
    return y.clamp(-3, 3)


@part
def zeros_filled(self, h, x):
    y = torch.zeros_like(h)
    y[:, :3] = h[:, 3:]
    y[1:] += h[:-1]
    note("filled", y.requires_grad, y.is_leaf, y._version)
    return y


@part
def expanded(self, h, x):
    w = self.other.expand(len(h), -1)
    note("expanded", w)
    return (h * w).t().contiguous().t() + self.other[2]


@part
def hooked(self, h, x):
    y = torch.tanh(h)
    if y.requires_grad:
        y.register_hook(lambda g: note_flow("hook", g))
        y.register_hook(lambda g: g * 0.5)
    z = y * 1.5
    if z.requires_grad:
        z.register_hook(lambda g: note_flow("outer hook", g))
    return z


@part
def hook_removed(self, h, x):
    y = torch.tanh(h)
    if y.requires_grad:
        first = y.register_hook(lambda g: g * 3)
        y.register_hook(lambda g: note_flow("second", g))
        first.remove()
    return y


@part
def hook_before_write(self, h, x):
    y = h * 2
    if y.requires_grad:
        y.register_hook(lambda g: note_flow("before the write", g))
        y.mul_(0.5)
        y.register_hook(lambda g: note_flow("after the write", g))
    return y + 1


@part
def retained(self, h, x):
    y = torch.sin(h)
    if y.requires_grad:
        y.retain_grad()
        note("retains", y.retains_grad)
    self.kept = [y]
    return y * self.other


@part
def stored(self, h, x):
    self.kept = [h, torch.cos(h)]
    return self.kept[1] + h


@part
def frozen_start(self, h, x):
    with torch.no_grad():
        k = self.lin(x).relu()
    note("frozen", k.requires_grad, k.is_leaf, k.grad_fn is None)
    return k * self.other


@part
def decorated(self, h, x):
    @torch.no_grad()
    def scale(t):
        return t.abs().amax(-1, keepdim=True)

    s = scale(h)
    note("scale", s)
    return h / (s + 1)


@part
def enabled_or_not(self, h, x):
    out = []
    for cond in (True, False, True):
        with torch.set_grad_enabled(cond):
            out.append(torch.tanh(h * self.other))
            note("enabled", out[-1])
    return sum(out)


@part
def inference_inside(self, h, x):
    with torch.inference_mode():
        s = h.mean() * 2
        note("inference", s)
    with errors("use of an inference tensor"):
        h * s
    return h + s.item()


@part
def cloned_inference(self, h, x):
    with torch.inference_mode():
        s = torch.ones(WIDTH) * 0.5
    return h * s.clone()


@part
def detached(self, h, x):
    d = h.detach()
    note("detached", d, d._base is None)
    return h * d.sigmoid()


@part
def written_through_data(self, h, x):
    y = h * 1.0
    y.data.mul_(0.5)
    note("data", y)
    return y + y.sin()


@part
def written_through_detach(self, h, x):
    y = h.sin()
    z = y * y
    y.detach().add_(1)
    note("detach", y._version)
    return z


@part
def data_replaced(self, h, x):
    y = h * 2
    y.data = torch.ones_like(y)
    return y * h


@part
def parameter_data_written(self, h, x):
    self.other.data.mul_(0.9)
    return h * self.other


@part
def parameter_written(self, h, x):
    with torch.no_grad():
        self.other.mul_(0.9)
    note("parameter", self.other)
    return h * self.other


@part
def leaf_written(self, h, x):
    with errors("leaf"):
        self.other.add_(1)
    with errors("view of a leaf"):
        self.other[:2].add_(1)
    with errors("view of views"):
        h.unbind(0)[0].add_(1)
    return h + self.other


@part
def data_decides(self, h, x):
    if h.sum() > 0:
        return torch.tanh(h)
    return F.gelu(h) * self.other


@part
def item_inside(self, h, x):
    scale = h.abs().mean().item()
    self.count += 1
    return h / (1 + scale)


@part
def grad_inside(self, h, x):
    y = h.square().sum()
    if y.requires_grad and torch.is_grad_enabled():
        g, = torch.autograd.grad(y, h, create_graph=True)
        note_flow("gradient inside", g)
        return h + 0.1 * g
    return h


@part
def backward_inside(self, h, x):
    with torch.enable_grad():
        w = self.other.detach().clone().requires_grad_()
        (w * h.detach()).square().mean().backward()
        note_flow("backward inside", w.grad)
    return h - 0.1 * w.grad


@part
def transform_inside(self, h, x):
    g = torch.func.grad(lambda t: (t.sin() * self.other).sum())(h.detach())
    note_flow("transform", g)
    return h + g


@part
def hooks_on_saved(self, h, x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (note("pack", t.shape), t)[1],
                                                  lambda t: (note("unpack", t.shape), t)[1]):
        y = torch.tanh(h) * self.other
    return y + 1


@part
def saved_on_cpu(self, h, x):
    with torch.autograd.graph.save_on_cpu():
        return (h * self.other).exp().clamp(max=4)


@part
def saved_may_change(self, h, x):
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        y = h.sin()
        z = y * y
        y.mul_(2)
    return z


@part
def anomaly_inside(self, h, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            return torch.tanh(h) * self.other


@part
def not_saved(self, h, x):
    with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
        return torch.tanh(h) * self.other


@part
def own_function(self, h, x):
    return Double.apply(h) + 1


@part
def dirty_function(self, h, x):
    return Dirty.apply(h * 2) + self.other


@part
def two_results(self, h, x):
    y, mask = Two.apply(h, 0.5)
    note("mask", mask)
    return torch.where(mask, y, h * 0.1)


@part
def new_function(self, h, x):
    return New.apply(h) * self.other


@part
def checkpointed(self, h, x):
    return checkpoint(lambda t: F.dropout(torch.tanh(t * self.other), 0.3, self.training), h, use_reentrant=False) + h


@part
def reentrant(self, h, x):
    return checkpoint(lambda t: F.dropout(torch.tanh(t), 0.3, self.training), h, use_reentrant=True) * self.other


@part
def checkpoint_other_draws(self, h, x):
    return checkpoint(torch.tanh, h, use_reentrant=False, preserve_rng_state=False) * self.other


@part
def in_bfloat16(self, h, x):
    with torch.autocast("cpu", torch.bfloat16):
        y = F.linear(h, self.lin.weight)
        note("autocast", y.dtype, y.requires_grad)
    return y.float() + self.other


@part
def in_double(self, h, x):
    return (h.double() * self.other.double()).tanh().float()


@part
def generator(self, h, x):
    def pieces():
        for row in h:
            yield row * self.other

    return torch.stack(list(pieces()))


@part
def half_consumed(self, h, x):
    def pieces():
        with torch.no_grad():
            yield h * 2
        yield h * 3

    first, second = pieces(), pieces()
    a = next(first)
    note("generator", a, torch.is_grad_enabled())
    b = sum(second)
    first.close()
    return a + b


@part
def requires_grad_set(self, h, x):
    mask = torch.ones(WIDTH).requires_grad_()
    y = h * mask
    with errors("requires_grad of a result"):
        y.requires_grad_(False)
    z = (h.detach() * 2).requires_grad_()
    note("leaf of a region", z)
    self.kept = [mask, z]
    return y + z.tanh()


@part
def detach_in_place(self, h, x):
    y = h * 2
    z = y + 1
    y.detach_()
    note("detach_", y, z)
    return z * y


@part
def split_up(self, h, x):
    a, b = h.chunk(2, -1)
    c = a.sigmoid() * b
    note("chunk", a, b, a._base is None)
    return torch.cat([c, a.sin()], -1)


@part
def same_twice(self, h, x):
    y = h.reshape(h.shape)
    note("reshape", y is h, y._base is None, y.contiguous() is y)
    return y + h.view_as(h)


@part
def copied(self, h, x):
    c = copy.copy(h)
    note("copy", c)
    with errors("deepcopy of a result"):
        copy.deepcopy(h)
    with errors("pickle of a result"):
        note("pickle", pickle.loads(pickle.dumps(h)))
    return h + c


@part
def numpy_of_a_result(self, h, x):
    with errors("numpy"):
        h.numpy()
    with errors("tolist"):
        note("list", len(h.tolist()))
    return h + torch.from_numpy(h.detach().numpy()).mean()


@part
def caught_error(self, h, x):
    with errors("shapes"):
        (h * 2) @ torch.ones(WIDTH + 1, 2)
    with errors("backward of a matrix"):
        (h * 2).backward()
    return h * self.other


@part
def set_and_resized(self, h, x):
    with errors("resize_"):
        (h * 1).resize_(2, 2)
    with errors("set_"):
        (h * 1).set_(torch.ones(2))
    y = h.clone()
    with errors("out="):
        torch.mul(h, 2, out=y)
    return h + 1


@part
def swapped_gradients(self, h, x):
    """Values of the parameter's gradient, where there is one."""
    g = self.other.grad
    return h if g is None else h + g.detach().clamp(-1, 1) * 0.1


@part
def recurrent_cell(self, h, x):
    s = torch.zeros(len(h), WIDTH)
    for t in range(3):
        s = torch.tanh(h * 0.5 + s * self.other)
        if t == 1:
            s = s.detach()
    return s + h


@part
def accumulated_list(self, h, x):
    kept = []
    for i in range(3):
        kept.append(F.softplus(h + i))
    del kept[1]
    return torch.stack(kept).mean(0)


@part
def not_used(self, h, x):
    self.lin(h) * self.other
    return h.relu()


@part
def replaced_parameter(self, h, x):
    """Another Parameter object after each call."""
    y = h * self.other
    self.other = nn.Parameter(self.other.detach() * 1.01)
    return y


@part
def no_gradient_at_all(self, h, x):
    return h.sign() + self.other.round() + (h * 0).detach()


@part
def zero_size(self, h, x):
    e = h[:0]
    note("empty", e, e.sum())
    return torch.cat([e * 2, h]) + e.sum()


@part
def cumulative(self, h, x):
    return h.cumsum(0).logsumexp(-1, keepdim=True) + h.sort(-1).values * self.other


@part
def tied(self, h, x):
    return F.linear(torch.tanh(h), self.lin.weight.t(), self.lin.bias)


@module
def linear():
    return nn.Linear(WIDTH, WIDTH)


@module
def batch_norm():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())


@module
def batch_norm_mean():
    return nn.BatchNorm1d(WIDTH, momentum=None, affine=False)


@module
def batch_norm_without_statistics():
    return nn.BatchNorm1d(WIDTH, track_running_stats=False)


@module
def sync_batch_norm():
    return nn.SyncBatchNorm(WIDTH).eval()


@module
def layer_norm():
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.GELU())


@module
def dropout():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.3), nn.AlphaDropout(0.2))


@module
def weight_norm():
    return parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))


@module
def spectral_norm():
    return parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH))


@module
def orthogonal():
    return parametrizations.orthogonal(nn.Linear(WIDTH, WIDTH))


@module
def old_weight_norm():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(nn.Linear(WIDTH, WIDTH))


@module
def pruned():
    layer = nn.Linear(WIDTH, WIDTH)
    prune.random_unstructured(layer, "weight", 0.4)
    return layer


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


@module
def own_parametrization():
    layer = nn.Linear(WIDTH, WIDTH)
    nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric())
    return layer


class Table(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.table = nn.Embedding(10, WIDTH, **options)

    def forward(self, x):
        return x + self.table((x.detach()[:, 0] * 10).long() % 10)


@module
def embedding():
    return Table(padding_idx=1)


@module
def sparse_embedding():
    return Table(sparse=True)


@module
def scaled_embedding():
    return Table(scale_grad_by_freq=True)


@module
def embedding_with_norm():
    return Table(max_norm=1.0)


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.base, self.head = nn.Linear(WIDTH, WIDTH).requires_grad_(False), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.head(torch.tanh(self.base(x)))


@module
def frozen():
    return Frozen()


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell = kind(WIDTH, WIDTH)

    def forward(self, x):
        h = self.cell(x)
        h = self.cell(x, h)
        return h[0] if isinstance(h, tuple) else h


@module
def gru_cell():
    return Recurrent(nn.GRUCell)


@module
def lstm_cell():
    return Recurrent(nn.LSTMCell)


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x):
        y, weights = self.attend(x[None], x[None], x[None])
        note("weights", weights.requires_grad, weights.is_leaf)
        return x + y[0]


@module
def attention():
    return Attends()


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.norm(self.conv(x[None, None])), inplace=True), 1).mean(1)[0] + x


@module
def convolution():
    return Image()


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = self.first

    def forward(self, x):
        return self.second(F.silu(self.first(x)))


@module
def shared():
    return Shared()


@module
def activations():
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.PReLU(), nn.Hardswish(inplace=True), nn.ELU(inplace=True))


# What changes the model, or torch's state, in the forward pass: several threads would disturb each other.
DISTURBS = {"parameter_written", "parameter_data_written", "replaced_parameter", "anomaly_inside",
            "own_parametrization", "item_inside", "embedding_with_norm", "spectral_norm",
            "saved_may_change", "pruned", "old_weight_norm",
            "retained"}  # torch crashes where one thread lets go of it while another one goes back


@image_part
def image(self, h, x):
    y = F.interpolate(h.view(len(h), 1, 2, 3), scale_factor=2, mode="bilinear")
    y = F.instance_norm(F.pad(y, (1, 1, 1, 1), mode="reflect"), eps=0.1)
    return F.adaptive_avg_pool2d(F.max_pool2d(y, 2), (2, 3)).flatten(1) * self.other


@image_part
def channels(self, h, x):
    y = F.group_norm(h.view(len(h), WIDTH, 1).expand(-1, -1, 4) * x[:, :4].unsqueeze(1), 2, self.other, eps=0.1)
    return F.channel_shuffle(y, 3).mean(-1)


@image_part
def volume(self, h, x):
    y = F.conv3d(h.view(len(h), 1, 1, 2, 3), self.other.view(1, 1, 1, 2, 3), padding=1)
    return F.interpolate(F.max_pool3d(y, 2, 1), (1, 2, 3)).flatten(1)


@choosing_part
def directions(self, h, x):
    near = F.cosine_similarity(h, x, dim=-1).unsqueeze(-1)
    return F.normalize(h, dim=-1, eps=0.1) * self.other + near * h.norm(dim=-1, keepdim=True)


@choosing_part
def chosen(self, h, x):
    least, total = h.median(-1, keepdim=True)[0], h.logsumexp(-1, keepdim=True)
    return h.cumsum(-1) * self.other - h.max(-1, keepdim=True).values + least * total + h.cummax(-1)[0]


@choosing_part
def placed(self, h, x):
    at = torch.arange(len(h)).mul(3).remainder(max(1, len(h) - 1))
    y = torch.zeros_like(h).index_add(0, at, h * self.other).scatter_add(0, at[:, None].expand_as(h), h)
    return y.index_fill(1, torch.tensor([1]), 0.5) + h[at, at.remainder(WIDTH)][:, None]


@choosing_part
def compared(self, h, x):
    far = F.triplet_margin_loss(h, x, self.other.expand_as(h), reduction="none").unsqueeze(-1)
    return torch.atan2(h, self.other + 2) * F.smooth_l1_loss(h, x, reduction="none") + torch.fmax(h, self.other) * far


NAMES = sorted(FUNCTIONS.keys() - {*IMAGES, *CHOICES}) + sorted(MODULES)  # those are drawn by themselves


def build(names):
    model = nn.Sequential(*[Call(FUNCTIONS[n]) if n in FUNCTIONS else MODULES[n]() for n in names])
    return model if any(p.requires_grad for p in model.parameters()) else model.append(nn.Linear(WIDTH, WIDTH))
