"""Programs in which allocations fail, for test_faults.py: `python faults.py PROGRAM KIND WARM,WARM... STRIDE` makes the
nth allocation of a call fail, for every STRIDEth n, after WARM calls with enough memory. The call gives an exception
that speaks of memory, or a right result; the two calls after it are right. KIND: core (allocations of dycl's own),
core-burst (three in a row), core-rest (all from there on), python (Python's, where dycl asks for them)."""

import ctypes
import faulthandler
import gc
import os
import sys

import dycl
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from dycl import _core
from torch import nn

CASES = {}


def case(make):
    """make() gives a new module; its forward takes the number of the call, and returns tensors, numbers and texts."""
    CASES[make.__name__] = make
    return make


@case
class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.second = nn.Conv2d(3, 16, 3,
                                                      padding=1), nn.BatchNorm2d(16), nn.Conv2d(16, 16, 3, padding=1,
                                                                                                groups=2)
        self.linear, self.layer, self.out = nn.Linear(16 * 64, 32), nn.LayerNorm(32), nn.Linear(32, 8)
        self.up, self.group = nn.ConvTranspose2d(16, 4, 2, stride=2), nn.GroupNorm(4, 16)

    def forward(self, n):
        x = torch.arange(2 * 3 * 256.0).view(2, 3, 16, 16).sin()
        y = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        y = self.group(y + self.second(y)).relu()
        mask, z = (self.conv(x) > 0).long(), self.up(y).double()
        y = F.gelu(self.linear(y.flatten(1)))
        q = y.view(1, 2, 2, 16)
        y = self.layer(F.scaled_dot_product_attention(q, q, q, is_causal=True).reshape(2, 32))
        values, places = y.topk(3)
        return (self.out(y), values, places, y.argmax(-1), mask.sum(), z.mean((2, 3)),
                F.interpolate(x, scale_factor=2, mode="bilinear").sum((1, 2)))


@case
class Writes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 8))
        self.weight = nn.Parameter(torch.arange(64.0).view(8, 8).cos())

    def forward(self, n):
        x = torch.arange(32.0).view(4, 8).sin() * (n + 1)
        self.cache[n % 4] = (x @ self.weight)[0]
        y = x.clone()
        y[:, ::2] = x[:, 1::2] * 2
        y[y > 0.5] = 0.25
        y.add_(1).mul_(x.exp())
        view = y.t()[1:3]
        view *= 3
        out = torch.empty(4, 8)
        torch.add(x, y, out=out)
        array = out.numpy()
        array[0] = 7
        kept = torch.cat([out, y, self.cache]).index_select(0, torch.tensor([3, 1, 2]))
        return (y, view, out.relu(), kept, torch.scatter_add(x, 1, torch.zeros(4, 8, dtype=torch.long), y),
                float(out[1, 2]), self.cache.clone())


@case
class Steps(nn.Module):
    """An optimizer's, of other parameters in each call."""

    def forward(self, n):
        params = [nn.Parameter(torch.arange(12.0).view(3, 4) + k + n % 3) for k in range(5)]
        optimizer = dycl.accelerate(torch.optim.AdamW(params, lr=0.1, amsgrad=n % 2 == 0))
        for _ in range(2):
            for p in params:
                p.grad = p.detach().sin()
            optimizer.step()
        states = [optimizer.state[p]["exp_avg"] for p in params]
        return [p.detach().clone() for p in params], states


@case
class Loops(nn.Module):
    """Another trip count and another branch in each call."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, n):
        x, total = torch.arange(64.0).view(4, 16).cos(), 0
        for i in range(3 + 5 * (n % 7)):
            x = torch.tanh(self.linear(x)) + x * 0.5
        if x.sum() > n % 3 - 1:
            x = x.softmax(-1)
        for i in range(n % 4):
            total += x[i].max().item()
        return x, total


@case
class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.lstm, self.gru = nn.Embedding(20, 12), nn.LSTM(12, 16, batch_first=True), nn.GRU(16, 8)
        self.head = nn.Linear(8, 20, bias=False)

    def forward(self, n):
        tokens = torch.arange(6).view(2, 3) + n % 5
        y, (h, c) = self.lstm(self.table(tokens))
        y, _ = self.gru(y.transpose(0, 1))
        scores = torch.einsum("sbk,vk->bsv", y, self.head.weight)
        values, order = scores.sort(-1, descending=True)
        parts = scores.split(7, -1)
        return (h, c, values, order[..., 0], scores.cumsum(1), torch.stack([p.logsumexp(-1) for p in parts]),
                scores.histc(5, -1, 1), torch.where(scores > 0, scores, -1.0))


@case
def Generation():
    from transformers import GPT2Config, GPT2LMHeadModel

    class Generate(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100, n_positions=64,
                                                    bos_token_id=0, eos_token_id=99, pad_token_id=99))

        def forward(self, n):
            return self.model.generate(torch.arange(4).view(1, 4) + n % 3, max_new_tokens=5, do_sample=False)

    return Generate()


@case
class Trains(nn.Module):
    """A whole step: forward, backward, the optimizer's."""

    def __init__(self):
        super().__init__()
        self.table, self.conv, self.norm = nn.Embedding(9, 8), nn.Conv1d(8, 8, 3, padding=1), nn.BatchNorm1d(8)
        self.layer, self.gates, self.out = nn.LayerNorm(8), nn.LSTMCell(8, 8), nn.Linear(8, 9)

    def accelerated(self):
        self.step = dycl.accelerate(self.step)
        return self

    @torch.enable_grad()
    def forward(self, n):
        return self.step(n)

    def step(self, n):
        tokens = torch.arange(8).view(2, 4) + n % 2
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        x = self.table(tokens)
        y = F.relu(self.norm(self.conv(x.transpose(1, 2))), inplace=True).transpose(1, 2)
        y = self.layer(x + F.scaled_dot_product_attention(y, y, y))
        state = y.new_zeros(2, 8), y.new_zeros(2, 8)
        for i in range(2 + n % 2):
            state = self.gates(y[:, i], state)
        loss = F.cross_entropy(self.out(F.gelu(state[0] + y.amax(1))), tokens[:, 0])
        optimizer.zero_grad()
        loss.backward()
        total = nn.utils.clip_grad_norm_(self.parameters(), 0.5)
        optimizer.step()
        return loss.item(), total, [p.grad for p in self.parameters()], \
            [p.detach().clone() for p in self.parameters()]


@case
class Differentiates(nn.Module):
    """Gradients asked of what an accelerated model gave: by backward, twice, with their history, through hooks."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Softplus(), nn.LayerNorm(6))

    def accelerated(self):
        self.inner = dycl.accelerate(self.inner)
        return self

    @torch.enable_grad()
    def forward(self, n):
        x = torch.arange(12.0 + 6 * (n % 2)).view(-1, 6).sin().requires_grad_()
        self.zero_grad()
        y = self.inner(x)
        y.register_hook(lambda g: g * 2)
        heard = [y.grad_fn.name(), type(y.grad_fn.next_functions).__name__, y.requires_grad]
        y.square().sum().backward(retain_graph=True)
        once = [p.grad.clone() for p in self.parameters()]
        y.sum().backward()
        g, = torch.autograd.grad(self.inner(x).sin().sum(), x, create_graph=True)
        h, = torch.autograd.grad(g.square().sum(), x)
        w = torch.utils.checkpoint.checkpoint(self.inner, x, use_reentrant=False)
        k = torch.autograd.grad(w.cos().sum(), [x, *self.parameters()])
        return heard, y.detach(), once, [p.grad for p in self.parameters()], x.grad, g.detach(), h, k


@case
class Penalised(nn.Module):
    """Gradients of gradients, which are recorded from the second call on, and of one tensor of several."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.SiLU(), nn.Linear(6, 2))

    def accelerated(self):
        self.inner = dycl.accelerate(self.inner)
        return self

    @torch.enable_grad()
    def forward(self, n):
        x = torch.arange(12.0 + 6 * (n % 2)).view(-1, 6).sin().requires_grad_()
        self.zero_grad()
        g, = torch.autograd.grad(self.inner(x).sum(), x, create_graph=True)
        h, = torch.autograd.grad(g[:, 0].sum(), x, create_graph=True)
        (g.square().sum() + h.square().sum()).backward()
        return g.detach(), h.detach(), x.grad, [p.grad for p in self.parameters()]


@case
class Reports(nn.Module):
    """What people ask about a model; the texts are looked at only for being there."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, n):
        y = self.inner(torch.ones(2, 8) * n)
        if getattr(self, "_compiled_call_impl", None) is not None:
            dycl.explain(self), dycl.stats(self), dycl.info()
        return y, torch.fft.fft(y).real


# ---- Faults


def fail_core(how_many):
    return lambda n: _core.faults(n, how_many), lambda: _core.faults(-1)


def fail_python():
    library = ctypes.PyDLL(os.environ["DYCL_TEST_PYMEM"])
    library.pymem_install(b"dycl/_core")
    numbers = [ctypes.c_long(0), ctypes.c_long(1)]

    def begin(n):
        numbers[0].value = n
        library.pymem_begin(*numbers)

    return begin, library.pymem_end


KINDS = {"core": lambda: fail_core(1), "core-burst": lambda: fail_core(3), "core-rest": lambda: fail_core(1 << 40),
         "python": fail_python}


def same(got, expected):
    if isinstance(expected, torch.Tensor):
        return isinstance(got, torch.Tensor) and got.dtype == expected.dtype and got.stride() == expected.stride() \
            and torch.allclose(got, expected, rtol=1e-4, atol=1e-4)
    if isinstance(expected, (tuple, list)):
        return len(got) == len(expected) and all(map(same, got, expected))
    return got == expected or not isinstance(expected, str) and abs(got - expected) < 1e-4


def speaks_of_memory(error):
    return isinstance(error, MemoryError) or isinstance(error, RuntimeError) and "memory" in str(error)


def new(name):
    torch.manual_seed(0)
    return CASES[name]().eval()


def accelerated(name):
    model = new(name)
    return model.accelerated() if hasattr(model, "accelerated") else dycl.accelerate(model)


def calls(name, count):
    """What eager gives for the first calls; a call that failed may have written or not, so that the buffers are part of
    a call's beginning."""
    model, out = new(name), []
    for n in range(count):
        state = {key: value.clone() for key, value in model.state_dict().items()}
        out.append((state, model(n)))
    return out


def one(name, expected, warm, n, begin, end):
    """Whether the call asked for so many allocations."""
    gc.collect()
    _core.forget()
    model = accelerated(name)
    for k in range(warm):
        assert same(model(k), expected[k][1]), f"call {k} with enough memory"
    said, got = "", None
    begin(n)
    try:
        got = model(warm)
    except Exception as error:  # noqa: BLE001: any
        asked = end()
        assert speaks_of_memory(error), f"allocation {n} of call {warm}: {error!r}"
        said = repr(error)
        del error
    else:
        asked = end()
        assert same(got, expected[warm][1]), f"allocation {n} of call {warm} failed, and the result is wrong"
    for k in range(warm, warm + 2):
        model.load_state_dict(expected[k][0])
        assert same(model(k), expected[k][1]), f"call {k} after allocation {n} of call {warm} had failed: {said}"
    assert torch._C._len_torch_function_stack() == 0, f"a mode is left: {n}, {said}"
    return asked > n, said


def main(name, kind, warms, stride):
    faulthandler.enable()
    torch.set_grad_enabled(False)
    begin, end = KINDS[kind]()
    accelerated(name)(0)
    for warm in map(int, warms.split(",")):
        expected = calls(name, warm + 2)
        n, heard = 0, {}
        while True:
            reached, said = one(name, expected, warm, n, begin, end)
            heard[said] = heard.get(said, 0) + 1
            if not reached:
                break
            n += int(stride)
        print(f"{name}, {kind}, call {warm}: {n} allocations,",
              ", ".join(f"{count} x {said or 'a right result'}" for said, count in heard.items()))


if __name__ == "__main__":
    main(*sys.argv[1:])
