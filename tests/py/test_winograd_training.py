"""3x3 convolutions whose weights are no constants (a model that trains, weights that are computed): by Winograd's
squares, by windows and by oneDNN, forward and back, each way forced in turn. Sizes, paddings and layouts are drawn;
results and gradients are compared with eager's and, where they part, judged by float64; numbers that the squares'
differences would spoil come between ordinary ones."""

import textwrap

import pytest

from isa import VECTOR_ISAS, run_with

COMMON = """
import itertools, random, sys
import torch, torch.nn.functional as F
from torch import nn
import dycl

def near(a, b, exact):
    if a is None or b is None:
        return a is b
    # whether a zero of the padding meets an infinity is each algorithm's own
    finite = a.isfinite() & b.isfinite() & exact.isfinite()
    if finite.all():
        return close(a, b, exact)
    return not b.isfinite().all() and (not finite.any() or close(a[finite], b[finite], exact[finite]))

def close(a, b, exact):
    far = (a.double() - exact).abs().max()  # eager's own
    return bool((b.double() - exact).abs().max() <= 8 * far + 4e-6 * exact.abs().max() + 1e-7)

def drawn(r):
    transposed = r.random() < 0.3
    c, o = r.choice([16, 16, 24, 32, 48]), r.choice([16, 16, 32, 64, 8, 20])
    kernel = r.choice([3, 3, 3, 3, (3, 1), 5])
    options = {"padding": r.choice([0, 1, 1, 1, 2, (2, 0)]), "stride": r.choice([1, 1, 1, 2]),
               "dilation": r.choice([1, 1, 1, 2]), "groups": r.choice([1, 1, 1, 1, 4]), "bias": r.random() < 0.7}
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer = kind(c, o, kernel, **options)
    size = r.choice([1, 2, 4]), c, r.randint(7, 15), r.randint(7, 15)
    return layer, size, r.choice([torch.contiguous_format, torch.contiguous_format, torch.channels_last])

class Net(nn.Module):
    def __init__(self, layer, r):
        super().__init__()
        self.first, self.layer = nn.Conv2d(layer.in_channels, layer.in_channels, 1), layer
        self.computed = r.random() < 0.3
        self.end = r.choice(["relu", "norm", "none", "residual"])
        self.norm = nn.BatchNorm2d(layer.out_channels)

    def forward(self, x):
        x = self.first(x)
        if self.computed:  # a weight that is no parameter
            y = torch.func.functional_call(self.layer, {"weight": torch.tanh(self.layer.weight) * 2}, (x,))
        else:
            y = self.layer(x)
        if self.end == "relu":
            y = y.relu()
        elif self.end == "norm":
            y = self.norm(y).relu()
        elif self.end == "residual" and y.shape == x.shape:
            y = (y + x).relu()
        return y

def step(net, x, grad):
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    net.zero_grad()
    y = net(x)
    y.backward(grad)
    return [y.detach(), x.grad] + [p.grad for p in net.parameters()]
"""

TRAINING = COMMON + """
import copy
seed, torch.backends.mkldnn.deterministic = int(sys.argv[1]), True
torch.set_num_threads(int(sys.argv[2]))
r = random.Random(seed)
torch.manual_seed(seed)
for _ in range(6):
    layer, size, layout = drawn(r)
    net = Net(layer, r)
    ours, exact = copy.deepcopy(net), copy.deepcopy(net).double()
    run = dycl.accelerate(ours)
    for nth in range(14):
        x = torch.randn(size).to(memory_format=layout)
        with torch.no_grad():
            grad = torch.randn_like(net(x))
            for p, q, e in zip(net.parameters(), ours.parameters(), exact.parameters()):
                new = torch.randn_like(p) * 0.1
                for t in (p, q, e):
                    t.copy_(new)  # each step has other weights
        if nth == 11:
            x[0, 1, 2, 3] = r.choice([1e30, float("inf")])
        if nth == 12:
            grad[-1, 2, 1, 0] = r.choice([1e25, float("inf"), float("nan")])
        want, right, got = step(net, x, grad), step(exact, x.double(), grad.double()), step(ours, x, grad)
        for k, (a, e, b) in enumerate(zip(want, right, got, strict=True)):
            assert near(a, b, e), (layer, size, layout, net.end, net.computed, nth, k, (a - b).abs().max())
            assert b is None or b.stride() == a.stride()
print("trained", dycl.explain(run) if "--explain" in sys.argv else "")
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("way", range(2))
@pytest.mark.parametrize("isa", VECTOR_ISAS)
def test_training(isa, way, threads):
    done = run_with(isa, "-c", textwrap.dedent(TRAINING), str(10 * way + threads), str(threads), timeout=300,
                    DYCL_MEASURE=str(way), DYCL_CHOOSE="0", DYCL_PROFILE="0")
    assert done.returncode == 0 and "trained" in done.stdout, done.stdout + done.stderr
