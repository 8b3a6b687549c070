"""Results that torch's C++ code gets as the objects that they are: inside transforms (vmap, grad), and where torch's
protocol is switched off."""

import dycl
import pytest
import torch
from same import compare
from torch.func import functionalize, grad, vmap


def both(function, mode=torch.no_grad):
    """In eager, and where every wrapper of a result was in a region of the other mode before."""
    torch.manual_seed(0)
    x = torch.randn(3, 3)
    with torch.inference_mode() if mode is torch.no_grad else torch.no_grad():
        for _ in range(2):
            dycl.accelerate(lambda x: ((x * 2 + 1) * 3 - x).sum())(x)
    with mode():
        want, got = function(x), dycl.accelerate(function)(x)
    compare(want, got, function.__name__, "transforms")
    return want, got


def views_under_vmap(x):
    y = x * 2
    y += 1
    return y, vmap(lambda row: row.T)(y[:, None]), vmap(lambda row: row.view(3, 1))(y)


def views_under_grad(x):
    y = x * 2
    kept = []
    grad(lambda t: (kept.append(t.view(-1)), t.sum())[1])(y)
    return y, functionalize(lambda t: t.view(-1))(y)


@pytest.mark.parametrize("function", [views_under_vmap, views_under_grad])
def test_views_of_results_count_writes_with_them(function):
    for outcome in both(function):
        base, *views = outcome
        before = base._version
        for view in views:
            view.add_(1)
        assert base._version == before + len(views)
        assert all(view._base is base for view in views if view._base is not None and view._base.shape == base.shape)


def written_under_vmap(x):
    y = x * 2
    vmap(lambda row: row.add_(1))(y)
    return y, vars(y)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_what_a_transform_writes_keeps_no_notes(mode):
    assert both(written_under_vmap, mode)[1][1] == {}


def sizes_asked(x):
    y = x * 2
    with torch._C.DisableTorchFunction():
        torch.broadcast_tensors(y, y[0])
    return y, vars(y)


def test_whoever_asks_for_sizes_leaves_no_notes():
    assert both(sizes_asked)[1][1] == {}


def products_under_vmap(x):
    y = x * 2
    return vmap(lambda row: row @ row)(y), y


def views_without_protocol(x):
    y = x * 2
    with torch._C.DisableTorchFunction():
        view = torch.ops.aten.view.default(y, [-1])
        return y, view, view._is_view(), view.is_inference()


@pytest.mark.parametrize("function", [products_under_vmap, views_without_protocol])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_results_are_of_the_mode_that_is_on(function, mode):
    both(function, mode)
