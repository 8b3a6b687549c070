"""What explain, stats and dycl.debug.graph say of training: nodes of autograd's graph, what is kept for the backward
pass, what this computes again, its plans, and what ran in torch (csrc/py/site/report_train.c)."""

import gc
import pathlib
import re
import textwrap
import weakref

import pytest
import test_environment
import torch
import torch.nn.functional as F
from torch import nn

import dycl
from dycl import _core
from suite import one_thread  # noqa: F401 (a fixture)

KEYS = ("nodes", "backward_passes", "backward_replays", "backward_twice", "saved_bytes")


def counts(target):
    stats = dycl.stats(target)
    return tuple(stats[key] for key in KEYS)


def mlp():
    return dycl.accelerate(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)))


def train(model, steps, rows=4, **how):
    for _ in range(steps):
        model(torch.randn(rows, 8)).sum().backward(**how)


def test_a_training_step():
    model = mlp()
    train(model, 3)
    text = dycl.explain(model)
    assert counts(model) == (3, 3, 0, 0, 3 * 4 * 16 * 4)  # before GELU, behind it, and behind the norm
    assert "3 nodes of autograd's graph, 3 backward passes through them, 0 of these operator by operator in torch; " \
           "the last call keeps 768 bytes for its backward pass alone\n" in text
    assert "  autograd: 1 node for 4 of its operators; feeds that want gradients: 6 tensors (f32[16,8], f32[16], " \
           "f32[16], f32[16], f32[3,16], f32[3])\n" in text
    assert "  kept for the backward pass: 3 tensors (f32[4,16], f32[4,16], f32[4,16]), 768 bytes, for it alone; " \
           "4 tensors (f32[4,8], f32[16], f32[16], f32[3,16]), 448 bytes, that are feeds or results\n" in text
    assert re.search(r"\nbackward pass of segment 1: \d+ operators, \d+ steps, tuned plan, ran 3 times, 0 more in "
                     r"torch\n  from 1 tensor \(f32\[4,3\]\) to 6 tensors \(.*\) of its feeds; threads: .*\n"
                     r"tuned plan: \d+ steps, .*\n  graph: .*\n(.*\n)*.*matmul", text), text
    train(model, 2)
    assert re.search(r"\nbackward pass of segment 1: (?s:.*) [\d.]+ us matmul", dycl.explain(model)), "timed"


def test_the_documented_example(capsys):
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "debug.md").read_text()
    program, shown = re.search(r"## Training\n.*?```python\n(.*?)```\n\n```\n(.*?)```", page, re.DOTALL).groups()
    exec(program, {})
    pattern = re.escape(" ".join(shown.split())).replace(re.escape("..."), ".*")
    assert re.fullmatch(pattern, " ".join(capsys.readouterr().out.split()))


def again(function, *arguments):
    """How many operators its backward pass is said to compute again, by name."""
    accelerated = dycl.accelerate(function)
    accelerated(*arguments).sum().backward()
    found = re.search(r"computed again, from what was kept: (\d+) of its operators \((.*)\)", dycl.explain(accelerated))
    names = dict(re.fullmatch(r"(\w+)(?: (\d+) times)?", part).groups("1") for part in found[2].split(", ")) \
        if found else {}
    assert not found or sum(map(int, names.values())) == int(found[1])
    return {name: int(count) for name, count in names.items()}


def test_what_is_computed_again():
    x, y = torch.randn(3, 5, requires_grad=True), torch.randn(3, 5)
    assert again(lambda x: torch.exp(x) * 2, x) == {}  # the result is kept
    assert again(lambda x: torch.sin(x), x) == {"cos": 1}
    assert again(lambda x: torch.sin(torch.sin(x)), x) == {"cos": 2}
    weight = torch.randn(5, requires_grad=True)
    assert again(lambda x: F.layer_norm(x, (5,), weight), x) == {}  # a row is measured again within a step
    assert again(lambda x: torch.sin(y) * x, x) == {}  # the sine is kept
    query = torch.randn(1, 2, 4, 8, requires_grad=True)
    assert again(lambda q: F.scaled_dot_product_attention(q, q, q), query)["softmax"] == 1


def test_what_nobody_asks_for_is_not_said():
    """Gradients of the weights alone need the input of the last layer."""
    model = mlp()
    model[0].requires_grad_(False)
    model[2].requires_grad_(False)
    train(model, 3)
    text = dycl.explain(model)
    assert "autograd: 1 node for 1 of its operators; feeds that want gradients: 2 tensors (f32[3,16], f32[3])" in text
    assert "kept for the backward pass: 1 tensor (f32[4,16]), 256 bytes, for it alone\n" in text
    assert "computed again" not in text and counts(model) == (3, 3, 0, 0, 256)
    model.requires_grad_(False)
    train_no = dycl.accelerate(nn.Linear(8, 3).requires_grad_(False))
    train_no(torch.randn(2, 8))
    assert counts(train_no) == (0,) * 5 and not re.search("autograd|backward", dycl.explain(train_no))


def test_a_result_that_is_held_costs_nothing():
    kept = dycl.accelerate(lambda x: torch.exp(x) * 2)
    held = dycl.accelerate(lambda x: (lambda y: (y * 2, y))(torch.exp(x)))
    x = torch.randn(6, requires_grad=True)
    for _ in range(3):
        kept(x).sum().backward()
        held(x)[0].sum().backward()
    assert counts(kept) == (3, 3, 0, 0, 24)
    assert counts(held) == (6, 6, 0, 0, 0)  # a result that another one depends on stands between two nodes
    assert "kept for the backward pass: 1 tensor (f32[6]), 24 bytes, that are feeds or results" in dycl.explain(held)
    assert re.search(r"from 1 tensor \(f32\[6\]\) to 0 tensors of its feeds and to 1 value between nodes",
                     dycl.explain(held))


def test_nothing_is_kept_where_nothing_is_needed():
    f = dycl.accelerate(lambda x, y: x + y)
    x = torch.randn(4, requires_grad=True)
    f(x, torch.randn(4)).sum().backward()
    assert "  kept for the backward pass: nothing\n" in dycl.explain(f) and counts(f) == (1, 1, 0, 0, 0)
    text = dycl.explain(f)
    assert "backward pass of segment 1: 0 operators, 0 steps, no plan, ran 1 times, 0 more in torch\n" in text
    assert "# backward pass of it, hands on what comes: ran 1 times, 0 more in torch\n" in dycl.debug.graph(f)


def test_bytes_are_those_of_the_last_call():
    def f(x):
        y = torch.exp(x) * 2
        return torch.sigmoid(y * 3) * 2 if y.sum().item() > -1 else y  # two segments

    f = dycl.accelerate(f)
    for rows in (3, 5, 4):
        f(torch.randn(rows, 2, requires_grad=True))
        assert dycl.stats(f)["saved_bytes"] == 2 * rows * 2 * 4
    with torch.no_grad():
        f(torch.randn(9, 2))
    assert dycl.stats(f)["saved_bytes"] == 2 * 4 * 2 * 4, "that call makes no nodes"


def test_gradients_that_are_differentiated():
    f = dycl.accelerate(lambda x: (x.exp() * x).sum())
    x = torch.randn(4, requires_grad=True)
    f(x).backward()
    gradient, = torch.autograd.grad(f(x), x, create_graph=True)
    assert counts(f)[1:4] == (2, 1, 1)
    text = dycl.explain(f)
    assert "2 nodes of autograd's graph, 2 backward passes through them, 1 of these operator by operator in torch;" \
        in text
    assert "\n  1 of them made gradients that are to be differentiated themselves (create_graph=True)\n" in text
    assert "could not run" not in text and ", ran 1 times, 1 more in torch\n" in text
    gradient.sum().backward()
    assert dycl.stats(f)["backward_passes"] > 2


def test_passes_that_cannot_run_say_why():
    f = dycl.accelerate(lambda x: torch.exp(x) * 2)
    x = torch.randn(4, requires_grad=True)
    y = f(x)
    y.grad_fn.tape  # a node of ours
    other = torch._neg_view(torch.ones(4))
    y.backward(other)
    text = dycl.explain(f)
    assert counts(f)[2:4] == (1, 0)
    assert "  1 of them could not run here, the last one because: a gradient, or what was saved, is no plain tensor" \
        in text


def test_passes_count_where_the_call_was():
    """Two callables that record the same share a segment and its backward graphs, and not their counts."""
    def f(x):
        return torch.exp(x) * 2

    a, b = dycl.accelerate(f), dycl.accelerate(lambda x: f(x))
    x = torch.randn(4, requires_grad=True)
    y, z = a(x), b(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert counts(a)[:2] == (1, 2) and counts(b)[:2] == (1, 0)
    z.sum().backward()
    assert counts(a)[:2] == (1, 2) and counts(b)[:2] == (1, 1)


def test_tapes_outlive_sites_and_do_not_keep_them():
    results = []

    def f(x):
        return torch.exp(x) * len(results)

    f.__dict__["results"] = results  # the function holds what its calls made
    fast = dycl.accelerate(f)
    x = torch.randn(4, requires_grad=True)
    results.append(fast(x))
    gone = weakref.ref(fast)
    del fast, f
    gc.collect()
    assert gone() is None
    results[0].sum().backward()
    assert x.grad is not None


def test_a_segment_that_torch_differentiates_says_why():
    f = dycl.accelerate(lambda x: x.square() * 2)
    x = torch.tensor([-3.0, 0.5, 3.0], requires_grad=True)
    _core.set_replaying(True)  # no operator is known whose gradients turn out to be torch's so late
    try:
        f(x).sum().backward()
    finally:
        _core.set_replaying(False)
    assert dycl.stats(f)["replays"] == 1 and counts(f) == (0,) * 5
    assert "ran operator by operator in torch, the last one because: " in dycl.explain(f)
    assert x.grad.tolist() == [-12, 2, 12]


def test_the_graphs_of_backward_passes():
    model = mlp()
    train(model, 3, rows=7)  # nobody else's segment
    parts = dycl.debug.graph(model, "graph").split("\n\n")
    at = next(i for i, part in enumerate(parts) if part.startswith("# backward pass of it: ran 3 times, 0 more in"))
    assert "linear" in parts[at - 1] and "as recorded" in parts[at - 1]
    assert "matmul" in parts[at + 1] and "as recorded" in parts[at + 1] and len(parts) == at + 2
    everything = dycl.debug.graph(model)
    assert everything.count("tuned plan: ") == 2 and dycl.debug.graph(model) == everything


def test_looking_changes_nothing():
    model = mlp()
    train(model, 3)
    before = dycl.stats(model), dycl.info()
    dycl.explain(model), dycl.debug.graph(model)
    assert (dycl.stats(model), {**dycl.info(), "profile": before[1]["profile"]}) == before


def test_the_log_shows_backward_graphs():
    program = textwrap.dedent("""
        import torch, dycl
        f = dycl.accelerate(lambda x: torch.sin(x) * 2)
        def g(x):
            f(x).sum().backward()  # in a region
            print(len(seen))
        import logging
        class Keep(logging.Handler):
            def emit(self, record):
                seen.append(record.getMessage())
        seen = []
        logging.getLogger("dycl").addHandler(Keep())
        x = torch.ones(3, requires_grad=True)
        f(x).sum().backward()
        print([" = sin %" in text for text in seen], [" = cos %" in text for text in seen])
        seen.clear()
        dycl.accelerate(g)(torch.ones(4, requires_grad=True))
        print(len(seen) > 1)
        """)
    out = test_environment.start(program, DYCL_CHOOSE="0", DYCL_LOG="graph")
    assert out.stdout.splitlines() == ["[True, False] [False, True]", "0", "True"]


def test_memory_that_runs_out():
    """What was not noted for lack of memory is not said; the steps behind are right."""
    model, x = mlp(), torch.randn(2, 8)
    model(x).sum().backward()
    expected, n, asked = [p.grad.clone() for p in model.parameters()], -1, 0
    while asked > n:
        n += 1
        _core.forget()
        model.zero_grad()
        _core.faults(n)
        try:
            model(x).sum().backward()
            dycl.explain(model), dycl.debug.graph(model)
        except (MemoryError, RuntimeError) as error:
            assert isinstance(error, MemoryError) or "memory" in str(error)
        asked = _core.faults(-1)
        model.zero_grad()
        model(x).sum().backward()
        assert all(torch.allclose(p.grad, e, atol=1e-5) for p, e in zip(model.parameters(), expected))
    assert n > 100 and "backward pass of segment" in dycl.explain(model)


def test_names_where_nothing_is_accelerated():
    from dycl import _api

    assert set(_api._counts_of_nothing()) == set(dycl.stats(mlp())) and set(KEYS) < set(_api._counts_of_nothing())
    for key in dycl.stats(mlp()):
        assert f"``{key}``" in dycl.stats.__doc__, key
