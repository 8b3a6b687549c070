"""Embeddings and losses over classes in training: recorded, with torch's gradients."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from suite import one_thread  # noqa: F401 (a fixture)
from test_gradients import agree

dycl.accelerate(lambda: None)  # finds torch


def compare(function, leaves, left=0):
    """function(*leaves) -> scalar, three times each; left: operators that torch runs in a call"""
    run = dycl.accelerate(function)
    for _ in range(3):
        seen = []
        for f in (function, run):
            copies = [t.detach().clone().requires_grad_(t.requires_grad) for t in leaves]
            value = f(*copies)
            value.backward()
            seen.append([value.detach()] + [t.grad for t in copies if t.requires_grad])
        for want, got in zip(*seen):
            assert agree(want, got), (want, got)
    stats = dycl.stats(run)
    assert stats["recorded"] and stats["torch"] == 3 * left, dycl.explain(run)


LOGITS = [((5,), ()), ((6, 5), (6,)), ((1, 1), (1,)), ((2, 5, 3), (2, 3)), ((2, 5, 3, 4), (2, 3, 4)),
          ((2, 5, 3, 2, 2), (2, 3, 2, 2))]


@pytest.mark.parametrize("shape,target", LOGITS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_losses(shape, target, reduction, loss):
    classes = shape[1] if len(shape) > 1 else shape[0]
    y = torch.randint(classes, target)
    compare(lambda x: loss(x * 2, y, reduction=reduction).sum() * 3, [torch.randn(shape, requires_grad=True)])
    compare(lambda x: loss((x * 2).double(), y, reduction=reduction).sum(), [torch.randn(shape, requires_grad=True)])


@pytest.mark.parametrize("shape,target", LOGITS)
@pytest.mark.parametrize("ignored", [0, -100])
@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_losses_of_other_ranks_are_views(shape, target, ignored, loss):
    """torch's kernels know [n, c] and [n, c, h, w]: what it gives for others is a view of theirs."""
    y = torch.randint(5 if len(shape) == 1 else shape[1], target)

    def look(x):
        z = loss(x * 2, y, reduction="none", ignore_index=ignored)
        base = z._base
        return z.shape, z.stride(), z._is_view(), None if base is None else (base.shape, base.stride()), z._version

    run = dycl.accelerate(look)
    for grad in (False, True):
        x = torch.randn(shape, requires_grad=grad)
        for _ in range(3):
            assert run(x) == look(x)
            with torch.no_grad():  # a hosted step: its base has the result's own shape
                assert run(x)[:3] == look(x)[:3]


def weights(dtype=torch.float):
    """Some of them are zero; one is inf, of a class that no target names: what counts its classes makes such."""
    return {None: None, "some": torch.rand(5).to(dtype), "zero": torch.tensor([1, 0, 2, 0.5, 0]).to(dtype),
            "inf": torch.tensor([1, 2, 3, 4, torch.inf]).to(dtype)}


def targets(shape, ignored):
    """Of four of five classes; some are ignored."""
    y = torch.randint(4, shape)
    y[torch.rand(shape) < 0.3] = ignored
    return y


@pytest.mark.parametrize("shape,target", LOGITS[1:2] + LOGITS[4:] + [((5,), ()), ((3, 5, 4), (3, 4))])
@pytest.mark.parametrize("weight", ["some", "zero", "inf", None])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_weights_and_smoothing(shape, target, weight, smoothing):
    for reduction, ignored, dtype in itertools.product(["mean", "sum", "none"], [-100, 2, 255],
                                                       [torch.float, torch.double]):
        y, w = targets(target, ignored), weights(dtype)[weight]
        options = dict(weight=w, reduction=reduction, ignore_index=ignored)
        scale = torch.rand(target if reduction == "none" else (), dtype=dtype)
        x = torch.randn(shape, dtype=dtype, requires_grad=True)
        left = int(reduction == "none" and w is not None and len(target) not in (0, 1, 3))
        compare(lambda x: (F.cross_entropy(x * 2, y, label_smoothing=smoothing, **options) * scale).sum(), [x], left)
        if not smoothing and not left:
            compare(lambda x: (F.nll_loss((x * 2).log_softmax(0 if len(shape) == 1 else 1), y, **options)
                               * scale).sum(), [x])


@pytest.mark.parametrize("shape", [s for s, _ in LOGITS if 5 in s])
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_probabilities(shape, learns, smoothing):
    dim = 0 if len(shape) == 1 else 1
    for reduction, dtype, weight in itertools.product(["mean", "sum", "none"], [torch.float, torch.double],
                                                      ["some", "zero", None]):
        options = dict(weight=weights(dtype)[weight], reduction=reduction, label_smoothing=smoothing)
        leaves = [torch.randn(shape, dtype=dtype, requires_grad=True),
                  torch.rand(shape, dtype=dtype, requires_grad=learns)]
        compare(lambda x, y: F.cross_entropy(x * 2, y.softmax(dim), **options).square().sum(), leaves)


@pytest.mark.parametrize("options", [{"weight": torch.rand(5), "label_smoothing": 0.3}, {"weight": torch.rand(5)},
                                     {"label_smoothing": 0.3}, {"reduction": "none", "label_smoothing": 0.3}])
@pytest.mark.parametrize("form", ["classes", "ignored", "probabilities"])
@pytest.mark.parametrize("shape", [(6, 5), (2, 5, 3, 4), (2, 5, 3)])
def test_how_losses_look(options, form, shape):
    """Sizes, strides, views, names and counts of writes, of images channels last too."""
    target = shape[:1] + shape[2:]
    y = torch.rand(shape) if form == "probabilities" else targets(target, -100 if form == "ignored" else 0)

    def look(x):
        z = F.cross_entropy(x * 2, y, **options)
        return z.shape, z.stride(), z._is_view(), z._base is None, z._version, z.grad_fn.name()

    run = dycl.accelerate(look)
    forms = [torch.contiguous_format] + [torch.channels_last] * (len(shape) == 4)
    for form in forms:
        x = torch.randn(shape).to(memory_format=form).requires_grad_()
        for _ in range(3):
            assert run(x) == look(x)


def test_weights_that_are_wrong_or_learn():
    x, y = torch.randn(6, 5, requires_grad=True), torch.randint(5, (6,))
    for weight in (torch.rand(4), torch.rand(5, 1), torch.rand(5).double()):
        def step(weight=weight):
            return F.cross_entropy(x * 2, y, weight)

        with pytest.raises(RuntimeError) as want:
            step()
        run = dycl.accelerate(step)
        for _ in range(3):
            with pytest.raises(RuntimeError) as got:
                run()
            assert str(got.value) == str(want.value)
    w = torch.rand(5, requires_grad=True)
    run = dycl.accelerate(lambda: F.cross_entropy(x * 2, y, w))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="cannot have requires_grad True"):
            run()


@pytest.mark.parametrize("ignored", [-100, 2, 255, -1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_targets_that_are_ignored(ignored, reduction, loss):
    for some in ((0, 3), (0, 1, 2, 3), ()):
        y = torch.randint(5, (4,))
        y[list(some)] = ignored
        for shape, target in [((4, 5), (4,)), ((2, 5, 2), (2, 2))]:
            compare(lambda x: loss((x * 2).log_softmax(1), y.view(target), ignore_index=ignored,
                                   reduction=reduction).sum(), [torch.randn(shape, requires_grad=True)])


def test_targets_that_are_wrong():
    x = torch.randn(4, 5, requires_grad=True)
    for wrong in (5, -1):
        run = dycl.accelerate(lambda: F.cross_entropy(x * 2, torch.tensor([0, wrong, -100, 4])))
        for _ in range(3):
            with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
                run()


def test_logits_may_be_written_afterwards():
    """torch saves what log_softmax gave, not what it got."""
    y = torch.randint(5, (6,))

    def program(x):
        logits = x * 2
        loss = F.cross_entropy(logits, y)
        return loss, logits

    for run in (program, dycl.accelerate(program)):
        x = torch.ones(6, 5, requires_grad=True)
        for _ in range(3):
            loss, logits = run(x)
            with torch.no_grad():
                logits.mul_(7)
            loss.backward()


TABLES = list(itertools.product([None, 0, 3, -1], [(4,), (2, 3), (1, 1), (30,)]))


@pytest.mark.parametrize("padding,shape", TABLES)
def test_embeddings(padding, shape):
    index = torch.randint(7, shape)
    compare(lambda w: (F.embedding(index, w, padding) * 2).sin().sum(), [torch.randn(7, 3, requires_grad=True)])
    compare(lambda w: (F.embedding(index.int(), w.tanh(), padding) * 2).sum(), [torch.randn(7, 3, requires_grad=True)])


@pytest.mark.parametrize("padding", [None, 2])
def test_modules(padding):
    """The same row again and again, and a row that padding keeps."""
    index, y = torch.tensor([[1, 2, 2], [2, 1, 6]]), torch.tensor([3, 0])
    plain = nn.Sequential(nn.Embedding(7, 4, padding_idx=padding), nn.Flatten(), nn.Linear(12, 5), nn.Tanh())
    fast = dycl.accelerate(nn.Sequential(*plain))
    for _ in range(3):
        seen = []
        for model in (plain, fast):
            model.zero_grad()
            loss = nn.CrossEntropyLoss()(model(index), y)
            loss.backward()
            seen.append([loss.detach()] + [p.grad.clone() for p in plain.parameters()])
        for want, got in zip(*seen):
            assert agree(want, got), (want, got)
    if padding is not None:
        assert not plain[0].weight.grad[padding].any()


@pytest.mark.parametrize("options", [{"scale_grad_by_freq": True}, {"sparse": True}])
def test_other_embeddings_are_torchs(options):
    index, w = torch.tensor([1, 2, 2, 0]), torch.randn(7, 3)
    run = dycl.accelerate(lambda w: F.embedding(index, w, **options).sum())
    for _ in range(3):
        a, b = (w.clone().requires_grad_() for _ in range(2))
        F.embedding(index, a, **options).sum().backward()
        run(b).backward()
        assert a.grad.layout == b.grad.layout and agree(a.grad.to_dense(), b.grad.to_dense())


PICKS = {
    "gather one": lambda x, i: x.gather(1, i[:, :1] % 5),
    "gather some": lambda x, i: x.gather(1, i % 5),
    "gather fewer": lambda x, i: x.gather(0, i[:3, :4] % 4),
    "take_along_dim": lambda x, i: torch.take_along_dim(x, i % 5, 1),
    "index_select": lambda x, i: x.index_select(1, i.flatten() % 5),
    "index_select rows": lambda x, i: x.index_select(0, i.flatten() % 4),
    "rows": lambda x, i: x[i % 4],
    "columns": lambda x, i: x[:, i % 5],
    "elements": lambda x, i: x.flatten()[i % 20],
    "blocks": lambda x, i: x.view(4, 5, 1).expand(4, 5, 3)[i[0] % 4],
}


@pytest.mark.parametrize("name", PICKS)
def test_picks(name):
    index = torch.randint(60, (4, 6))
    for value in (lambda x: x, torch.tanh):
        compare(lambda x: (PICKS[name](value(x), index) * 2).square().sum(), [torch.randn(4, 5, requires_grad=True)])
