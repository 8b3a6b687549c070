"""Products of which only the largest element is wanted when Python asks for a value: what the program does with them
afterwards, eager's answer each time."""

import copy
import pickle
import threading

import dycl
import numpy as np
import pytest
import torch
from same import Programs, same
from torch import nn
from torch.nn import functional as F

from dycl import _core

PREFILTERS = _core.info()["isa"] != "scalar"  # without a kernel that does, nothing is gained by waiting
program = Programs()


class Head(nn.Module):
    """Large enough that reading its weights is worth something."""

    def __init__(self, bias=False, rows=4200, columns=260):
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        self.head = nn.Linear(columns, rows, bias=bias)

    def forward(self, x):
        return self.head(self.norm(x))


def head(bias=False, rows=1):
    def make():
        torch.manual_seed(3)
        return Head(bias), torch.randn(1, rows, 260)

    return make


@pytest.mark.parametrize("function, make, options", program.cases)
def test_postponed(function, make, options):
    expected = options.pop("postponed", (True, None))
    stats = same(function, make, like="matmul", **options)
    for key, want in zip(("postponed", "recalled"), expected):
        assert want is None or (stats[key] > 0) == (want and PREFILTERS), (key, stats)


# ---- nobody looks ----------------------------------------------------------------------------------------------------


@program(head(), postponed=(True, False))
def dropped(model, x):
    logits = model(x)[:, -1]
    token = int(logits.argmax(-1))
    del logits
    return token


@program(head(bias=True), postponed=(True, False))
def greedy_loop(model, x):
    tokens = []
    for _ in range(6):
        logits = model(x)
        scores = logits[:, -1].to(torch.float32, copy=True)
        best = torch.argmax(scores, dim=-1)
        tokens.append(best.item())
        x = x * 1.25 + best / 4200
    del logits, scores
    return tokens, x


@program(head(rows=3), postponed=(True, False))
def several_rows(model, x):
    logits = model(x)
    best = logits.argmax(-1)
    if best[0, 0] < 0:
        return None
    del logits
    return best


@program(head(), postponed=(True, False))
def only_its_shape(model, x):
    logits = model(x)
    best = int(logits.argmax())
    return (best, logits.shape, logits.stride(), logits.dtype, logits.numel(), len(logits), logits.is_contiguous(),
            logits.requires_grad)


# ---- somebody does ---------------------------------------------------------------------------------------------------


@program(head(), postponed=(True, True))
def returned(model, x):
    logits = model(x)
    return int(logits.argmax()), logits


@program(head(), postponed=(True, True))
def returned_with_views(model, x):
    logits = model(x)
    row = logits[:, -1]
    part = row[0, 5:9]
    other = row.to(torch.float32, copy=True)
    return int(other.argmax()), logits, row, part, other


@program(head(), postponed=(True, True))
def read_later(model, x):
    logits = model(x)
    best = int(logits.argmax())
    most = float(logits.max())
    return best, most, float(logits[0, 0, best]) == most


@program(head(), postponed=(False, False))
def an_element_of_it_first(model, x):
    logits = model(x)
    best, row = logits.argmax(-1), logits[:, -1]
    first = float(row[0, 7])
    return first, int(best), logits.shape


@program(head(), postponed=(True, True))
def many_views(model, x):
    logits = model(x)
    views = [logits[:, :, i : i + 3] for i in range(60)]
    best = int(logits.argmax(-1))
    views[5].mul_(2)
    return best, views, logits


@program(head(), postponed=(True, True))
def probabilities_later(model, x):
    logits = model(x)[:, -1]
    best = int(logits.argmax(-1))
    y = x + 1
    return best, F.softmax(logits, -1), y


@program(head(), postponed=(True, True))
def written_later(model, x):
    logits = model(x)
    row = logits[:, -1]
    best = int(logits.argmax())
    row.add_(1)
    logits[0, 0, best] = -1
    return best, logits, row


@program(head(), postponed=(True, True))
def in_place_later(model, x):
    logits = model(x)
    best = int(logits.argmax())
    logits.mul_(2)
    return best, logits


@program(head(), postponed=(True, True))
def all_kept(model, x):
    kept = []
    for _ in range(7):
        logits = model(x)
        kept.append(logits)
        x = x + 0.1 * int(logits.argmax()) / 4200
    return kept


@program(head(), postponed=(True, True))
def raised(model, x):
    logits = model(x)
    best = int(logits.argmax())
    if best >= 0:
        raise ValueError(f"{best} {float(logits[0, 0, best]):.3f}")


@program(head(), postponed=(True, True))
def printed_later(model, x):
    logits = model(x)
    best = int(logits.argmax())
    print(logits.shape, best, round(logits[0, 0, best].item(), 3))
    return best


@program(head(), postponed=(True, True))
def as_array(model, x):
    logits = model(x)
    best = int(logits.argmax())
    array = logits.numpy()
    array[0, 0, 3] = 7
    return best, logits[0, 0, :5], np.array(array[0, 0, :5])


@program(head(), postponed=(True, True))
def copied(model, x):
    logits = model(x)
    best = int(logits.argmax())
    return best, copy.deepcopy(logits), pickle.loads(pickle.dumps(logits))


@program(head(), postponed=(True, True))
def in_another_thread(model, x):
    logits = model(x)
    best = int(logits.argmax())
    found = []
    thread = threading.Thread(target=lambda: found.append(float(logits.sum())))
    thread.start()
    thread.join()
    return best, found


@program(head(), postponed=(True, True))
def detached(model, x):
    logits = model(x)
    best = int(logits.argmax())
    other = logits.detach()
    return best, other, logits


# ---- what it is made of changes before -------------------------------------------------------------------------------


@program(head(), postponed=(True, True))
def weight_written(model, x):
    logits = model(x)
    best = int(logits.argmax())
    model.head.weight.mul_(0.5)
    return best, logits, model(x)


@program(head(bias=True), postponed=(True, True))
def bias_written(model, x):
    logits = model(x)
    best = int(logits.argmax())
    model.head.bias[best] = -9.0
    return best, logits, int(model(x).argmax())


@program(head(), postponed=(True, True))
def weight_written_through_data(model, x):
    logits = model(x)
    best = int(logits.argmax())
    model.head.weight.data.zero_()
    return best, logits, model(x)


@program(head(), postponed=(True, True))
def weight_data_replaced(model, x):
    logits = model(x)
    best = int(logits.argmax())
    model.head.weight.data = torch.zeros(4200, 260)
    return best, logits, model(x)


@program(head(), postponed=(True, True))
def weight_written_as_array(model, x):
    logits = model(x)
    best = int(logits.argmax())
    model.head.weight.detach().numpy()[:] = 0
    return best, logits, model(x)


@program(head(), postponed=(True, True))
def weight_set(model, x):
    logits = model(x)
    best = int(logits.argmax())
    model.head.weight.set_(torch.ones(4200, 260))
    return best, logits, model(x)


@program(head(), postponed=(True, True))
def weight_written_in_its_storage(model, x):
    logits = model(x)
    best = int(logits.argmax())
    model.head.weight.untyped_storage().fill_(0)
    return best, logits


@program(head(), postponed=(True, True))
def weight_replaced(model, x):
    logits = model(x)
    best = int(logits.argmax())
    model.head.weight = nn.Parameter(torch.zeros(4200, 260))
    return best, logits, model(x)


@program(head(), postponed=(True, True))
def weight_swapped(model, x):
    logits = model(x)
    best = int(logits.argmax())
    with torch.enable_grad():
        y = model(x).sum()
    return best, logits, y.requires_grad


@program(head(), postponed=(True, True))
def operand_written(model, x):
    y = x * 1.5
    logits = model.head(y.clone())
    best = int(logits.argmax())
    y.zero_()
    x.add_(1)
    return best, logits, y


# ---- what is not postponed -------------------------------------------------------------------------------------------


@program(head(), postponed=(False, False))
def used_otherwise(model, x):
    logits = model(x)
    best = logits.argmax()
    other = logits.exp()
    return int(best), other, logits


@program(head(), postponed=(False, False))
def operand_held(model, x):
    y = model.norm(x)
    logits = model.head(y)
    return int(logits.argmax()), y, logits


@program(head(), postponed=(False, False))
def weight_is_no_parameter(model, x):
    logits = F.linear(model.norm(x), model.head.weight * 1)
    return int(logits.argmax()), logits


@program(head(), postponed=(False, False))
def product_written(model, x):
    logits = model(x)
    logits.add_(1)
    return int(logits.argmax()), logits


@program(head(), postponed=(False, False))
def copied_into(model, x):
    y = x.new_zeros(1, 1, 4200)
    y.copy_(model(x))
    return int(y.argmax()), y


@program(head(), postponed=(False, False))
def argmin(model, x):
    logits = model(x)
    return int(logits.argmin()), logits


@program(head(rows=2), postponed=(False, False))
def argmax_of_all(model, x):
    logits = model(x)
    return int(logits.argmax()), logits


@program(head(), postponed=(False, False), grad=True)
def with_gradients(model, x):
    logits = model(x)
    return int(logits.argmax()), logits.requires_grad


def test_hooks_and_subclasses_see_values():
    model = Head()
    seen = []
    model.head.register_forward_hook(lambda module, inputs, output: seen.append(output))

    def run(x):
        best = [int(model(x + i).argmax()) for i in range(3)]
        return best, [float(output.max()) for output in seen]

    x = torch.randn(1, 1, 260)
    with torch.no_grad():
        want = run(x)
        seen.clear()
        got = dycl.accelerate(run)(x)
    assert got[0] == want[0]
    torch.testing.assert_close(torch.tensor(got[1]), torch.tensor(want[1]))


@pytest.mark.skipif(not PREFILTERS, reason="nothing is postponed")
def test_what_is_always_asked_for_is_no_longer_postponed():
    model = Head()

    def run(x):
        logits = model(x)
        best = int(logits.argmax())
        return best, float(logits.max())

    fast = dycl.accelerate(run)
    with torch.no_grad():
        for _ in range(40):
            fast(torch.randn(1, 1, 260))
    stats = dycl.stats(fast)
    assert 0 < stats["postponed"] == stats["recalled"] < 8, stats
    assert "were asked for later" in dycl.explain(fast)


@pytest.mark.skipif(not PREFILTERS, reason="nothing is postponed")
def test_nothing_stays_alive():
    import gc
    import weakref

    def run():
        model = Head()
        weak = weakref.ref(model.head.weight)

        def step(x):
            logits = model(x)
            return int(logits.argmax()), logits[0, 0, 0].item() if x.sum() > 1e9 else None

        fast = dycl.accelerate(step)
        with torch.no_grad():
            for _ in range(5):
                fast(torch.randn(1, 1, 260))
        assert dycl.stats(fast)["postponed"] > 0
        return weak

    weak = run()
    gc.collect()
    assert weak() is None
