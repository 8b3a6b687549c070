"""Random trainings (tests/fuzz/trainings) for fixed seeds, and whether the comparison sees what it has to see.

`python -m tests.fuzz trainings --seconds 3600 --seed N` runs others for as long as asked."""

import pathlib
import sys

import pytest
import torch

import dycl
from suite import FULL, one_thread  # noqa: F401 (a fixture)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.fuzz.programs import judge, noise, run  # noqa: E402
from tests.fuzz.trainings import generate, program  # noqa: E402

dycl.accelerate(lambda: None)  # finds torch
BATCH = 6
PROGRAMS = 1000 if FULL else 2 * BATCH


@pytest.mark.parametrize("first", range(0, PROGRAMS, BATCH))
def test_trainings_of_fixed_seeds(first, capfd):
    status = run.main(["--programs", str(BATCH), "--first", str(first), "--seed", "1", "--no-reduce"], "trainings",
                      BATCH)
    assert status == 0, capfd.readouterr().out


def test_a_training_depends_on_its_seed_only():
    texts = [generate.draw_program("7 3").source() for _ in range(2) if torch.rand(1) >= 0]
    assert texts[0] == texts[1]
    assert len({generate.draw_program(f"7 {i}").source() for i in range(4)}) == 4


# ---- what a comparison has to see


def made(*train, **options):
    lines = train or ("w.optimizer.zero_grad()", "y = w.net(x)", "loss = w.criterion(y, t)", "w.note('loss', loss)",
                      "loss.backward()", "w.optimizer.step()")
    return program.Program(
        (program.Batch("x", (6,), "torch.float32", 1, "normal"), program.Batch("t", (3,), "torch.float32", 2,
                                                                               "normal")),
        ("nn.Linear(6, 5)", "nn.BatchNorm1d(5)", "nn.Linear(5, 3)"),
        (program.Step("x = self.m2(self.m1(self.m0(x)).relu())", "layer"),), criterion="nn.MSELoss()",
        optimizer="torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)",
        train=tuple(program.Step(line, "train") for line in lines), holds=("step",), **options)


def _planted(monkeypatch, change, training):
    """The kinds of differences where the accelerated side is torch with a mistake after its second step."""
    def accelerate(step):
        w = step.__globals__["w"]

        def wrong(*arguments):
            result = step(*arguments)
            if w.call == 2:
                with torch.no_grad():
                    change(w, w.net.m0.weight)
            return result

        return wrong

    monkeypatch.setattr(dycl, "accelerate", accelerate)
    return {d.kind for d in judge.check(training)[0]}


def _without_gradient(w, p):
    p.grad = None


def _other_gradient_object(w, p):
    w.net.m2.bias.grad = p.grad[0, :3]


def _transposed_gradient(w, p):
    p.grad = p.grad.t().contiguous().t()


def _raises(w, p):
    raise ValueError("x")


PLANTED = {
    "a parameter": (lambda w, p: p.data[0].add_(1e-3), {"values"}),
    "a gradient": (lambda w, p: p.grad[0].mul_(1.001), {"values"}),
    "a small gradient in all": (lambda w, p: p.grad.mul_(1.0001), {"values"}),
    "no gradient": (_without_gradient, {"structure"}),
    "a gradient's memory": (_other_gradient_object, {"aliasing"}),
    "a gradient's strides": (_transposed_gradient, {"strides"}),
    "a statistic": (lambda w, p: w.net.m1.running_mean.add_(1e-4), {"values"}),
    "a count": (lambda w, p: w.net.m1.num_batches_tracked.add_(1), {"values"}),
    "state of the optimizer": (lambda w, p: w.optimizer.state[p]["momentum_buffer"].mul_(1.001), {"values"}),
    "a version": (lambda w, p: p.add_(0), {"version", "noted"}),
    "a flag": (lambda w, p: p.requires_grad_(False), {"requires_grad", "noted"}),
    "a mode": (lambda w, p: w.net.eval(), {"noted"}),
    "a loss": (lambda w, p: w.log[-1][2].add_(1e-3), {"values"}),
    "what is noted": (lambda w, p: w.log.append("x"), {"structure"}),
    "an order": (lambda w, p: w.log.reverse() or w.log.insert(0, w.log[0]), {"structure"}),
    "printed": (lambda w, p: print("x"), {"printed"}),
    "random numbers": (lambda w, p: torch.rand(1), {"random state"}),
    "an error": (_raises, {"error"}),
    "a learning rate": (lambda w, p: w.optimizer.param_groups[0].update(lr=0.06), {"values"}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistakes_are_seen(name, monkeypatch):
    change, kinds = PLANTED[name]
    assert kinds & _planted(monkeypatch, change, made())


def test_torch_itself_does_not_differ(monkeypatch):
    assert not _planted(monkeypatch, lambda w, p: None, made())


def test_noise_leaves_statistics_of_batch_norm_where_they_are_written():
    """Its schema does not say so. Else their spread is their size, and no other value counts."""
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    for run_ in range(1, 10):
        moved = torch.nn.BatchNorm1d(3)
        with noise.Noise(1, run_):
            moved(x)
        assert torch.allclose(moved.running_mean, 0.1 * x.mean(0), atol=1e-3), run_


def test_noise_leaves_zeros_without_memory():
    with noise.Noise(1, 1):
        assert not torch._efficientzerotensor(3).any()


def test_whether_a_gradient_stays_the_same_object_is_seen(monkeypatch):
    def change(w, p):
        p.grad = p.grad.clone()

    training = made("w.holds = True", "loss = w.criterion(w.net(x), t)", "loss.backward()")
    assert {"noted"} & _planted(monkeypatch, change, training)


def test_rounding_is_no_difference(monkeypatch):
    """As much as another order of sums makes, in a step whose first part is amplified."""
    eps = torch.finfo(torch.float32).eps
    assert not _planted(monkeypatch, lambda w, p: p.mul_(1) and p.grad.mul_(1 + 2 * eps) and None, made()) & {"values"}
