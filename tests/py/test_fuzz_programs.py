"""Random programs (tests/fuzz/programs) for fixed seeds, programs that once differed, and whether the comparison sees
what it has to see.

`python -m tests.fuzz programs --seconds 3600 --seed N` runs others for as long as asked."""

import pathlib
import random
import sys

import numpy as np
import pytest
import torch

import dycl
from suite import FULL, one_thread  # noqa: F401 (a fixture)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.fuzz.programs import compare, draw, generate, judge, known, noise, program, run, steps_memory  # noqa: E402

dycl.accelerate(lambda: None)  # finds torch
PROGRAMS = 5000 if FULL else 300


@pytest.mark.parametrize("first", range(0, PROGRAMS, run.BATCH))
def test_programs_of_fixed_seeds(first, capfd):
    """Batches of one call of the fuzzer: each has its own environment."""
    status = run.main(["--programs", str(min(run.BATCH, PROGRAMS - first)), "--first", str(first), "--seed", "1"])
    assert status == 0, capfd.readouterr().out


def test_a_program_depends_on_its_seed_only():
    texts = [generate.draw_program("7 3").source() for _ in range(2) if torch.rand(1) >= 0]
    assert texts[0] == texts[1]
    assert len({generate.draw_program(f"7 {i}").source() for i in range(20)}) == 20


@pytest.mark.parametrize("moves", ["x0.data = torch.zeros(1)", "x0.resize_(99)", "x0.transpose_(0, 1)", ""])
def test_an_argument_is_shared_where_it_was_made(moves):
    d = draw.Draw(random.Random("shared"))
    d.input((5, 6), "torch.float32", plain=True)
    assert d.step(moves, "write")
    for _ in range(40):
        steps_memory.shared_argument(d)
    assert any(i.of for i in d.inputs) == (moves == "")
    compare.build(d.program())[2](0)


# ---- what programs found once

def of(text, *inputs, **options):
    """A program of one step or several lines, which makes v0. inputs: (sizes, strides, dtype, values), the last three
    optional."""
    made, grad = [], options.pop("grad", False)
    for k, (sizes, *rest) in enumerate(inputs):
        strides, dtype, values = [*rest, *(None, "float32", "grid")[len(rest) :]]
        made.append(program.Input(f"x{k}", sizes, program.layout.contiguous(sizes) if strides is None else strides, 0,
                                  f"torch.{dtype}", k, values, grad))
    return program.Program(tuple(made), steps=(program.Step(text, "found"),), returned=options.pop("returned", ("v0",)),
                           **options)


FOUND = {
    "a weight of 16 bits, expanded": of("v0 = F.rms_norm(input=x0, normalized_shape=[2, 1], weight=x1)",
                                        ((2, 1), (1, 2), "bfloat16"), ((2, 1), (0, 1), "bfloat16")),
    "two operators for one, strides of size 1": of("v0 = x0.pow(-2)", ((1, 4), (1, 6))),
    "views of a detached alias, with gradients": of("v0 = torch.detach(x0).movedim(-2, -1)", ((2, 2),), grad=True),
    "signs of NaN of 16 bits": of("v0 = torch.as_tensor(torch.softmax(x0, -4).signbit().detach().numpy() * 2)",
                                  ((2, 1, 2, 1), None, "bfloat16", "special")),
    "equal positions, the last in memory wins": of(
        "v0 = x0 * 2\nv0[x1] = x2", ((4,),), ((3, 5), (1, 3), "int64", "index 4"), ((3, 1),)),
    "equal positions, values in another order": of(
        "v0 = x0 * 2\nv0[x1] = x2", ((4,),), ((3, 5), None, "int64", "index 4"), ((3, 5), (1, 3))),
    "neighbours equal here and a unit apart in torch": of(
        "v0 = torch.unique_consecutive(F.interpolate(x0, scale_factor=2.0, mode='bilinear'), dim=-1)",
        ((1, 3, 32, 1), None, "float32", "normal")),
    "a loss of one kernel": of("v0 = F.mse_loss(x0, x1, reduction='none')", ((5, 1), (1, 1)), ((5, 1), (3, 13))),
    "cells that write into chunks, one hidden unit": of("v0 = torch.gru_cell(x0, x1, x2, x3)", ((3, 2),),
                                                        ((3, 1), (3, 7)), ((3, 2),), ((3, 1), (0, 2))),
    "cells that write into chunks, one row": of("v0 = torch.gru_cell(x0, x1, x2, x3)", ((1, 2),), ((1, 4), (1, 4)),
                                                ((12, 2),), ((12, 4), (9, 3))),
    "a product into its own operand": of("v0 = x0 * 2\nv1 = x1 * 2\nv0.addmv_(x1, v0, beta=-1)\nv1.addmm_(v1, "
                                         "x1)\nx1.addmm_(x1.T, v1)", ((3,),), ((3, 3),), returned=("v0", "v1")),
    "a loop over nothing": of("v0 = x0 * 2\nfor _ in range(x1.shape[0]):\n    v0 = v0 - v0.mean()", ((1, 1, 0, 7),),
                              ((4,),), other=(4, 6)),
    "gradients by leaving inference mode": of(
        "v0 = torch.ravel(x0)\nv1 = x0[0]\nwith torch.inference_mode(False):\n    log.append(((x0 + x0).requires_grad, "
        "(v1 * 2).requires_grad, v1.requires_grad))",
        ((2, 2),), grad=True),  # fmt: skip
    "a quotient of integers": of(
        "v0 = x0 * 2\nfor y in (x1, x2):\n    for z in (x1, x2, x0):\n        try:\n            "
        "log.append(torch.addcdiv(v0, y, z))\n        except Exception as e:\n            log.append(str(e))",
        ((2,),), ((2,), None, "int16"), ((2,), None, "bool")),  # fmt: skip
    "nothing times infinity": of("v0 = x0.addmm(x1, x2, alpha=float('inf'))", ((2,),), ((1, 0),), ((0, 2),)),
    "a mask that needs a gradient": of(
        "v0 = F.scaled_dot_product_attention(x1, x2, x2, x0)\nv1 = F.scaled_dot_product_attention(x1, x2, x2, x0[:1])",
        ((1, 2), (1, 1)), ((1, 2, 1, 2), (1, 2, 1, 1)), ((1, 2, 2, 2),), grad=True,
        returned=("v0", "v1")),  # fmt: skip
    "a norm over three dimensions": of("v0 = x0 * 2\ntry:\n    v0 = torch.linalg.norm(v0, dim=(-3, -2, -1))\nexcept "
                                       "Exception as e:\n    log.append(str(e))", ((2, 2, 2),)),
    "zero times a scale that is not finite": of(
        # fmt: skip
        "v0 = [f(x, a) for x in (x0, x0 * 0) for f in (F.elu, F.leaky_relu, F.softplus, torch.add, torch.mul) for a in "
        "(float('nan'), float('inf'), -float('inf'))]", ((10,),)),
    "a number of NumPy written": of("v0 = (x0 * np.float32(2)).clone()\ntry:\n    v0[...] = np.float32(1.5)\nexcept "
                                    "TypeError as e:\n    log.append(str(e))\nv0[0] = np.int64(2)\nv0[0] = "
                                    "np.float64(2)", ((2, 2),)),
    "a view of what needs a gradient": of(
        "v0 = x0[0]\nlog.append(v0.requires_grad)\nwith torch.enable_grad():\n    log.append((v0.requires_grad, "
        "v0.is_leaf, v0.grad_fn is None))\n    v1 = v0.clone()\nv2 = v1[0]\nlog.append((v1 * 2).requires_grad)",
        ((2, 2),), grad=True, returned=("v0", "v1", "v2")),  # fmt: skip
    "torch's groups with a filter of one row, beside random numbers": of(
        "v0 = F.conv2d(x0.permute(0, 3, 1, 2), x1, groups=2)\nv1 = torch.multinomial(torch.softmax(x2, -1), 1)",
        ((2, 2, 2, 4),), ((2, 2, 1, 2), (4, 1, 1, 2)), ((2,),)),
    "torch's rows of 5, seen with AMX the first element of the next one besides": of(
        "v0 = F.linear(x0, x1)", ((3, 5, 30, 5), None, "bfloat16", "special"), ((2, 5), None, "bfloat16")),
    "zeros of both signs, of which one is chosen": of(
        "v1 = torch.tensor([-0.0, 0.0, 0.0, -0.0, 1.0]).repeat(17)\nv2 = torch.tensor([0.0, -0.0, 0.0, -0.0, "
        "-0.0]).repeat(17)\nv0 = [f(v1, v2).signbit() for f in (torch.minimum, torch.maximum, torch.clamp, "
        "torch.clamp_min)] + [torch.clamp(v1, -v2.abs(), v2).signbit(), v1.clone().clamp_(max=v2).signbit(), "
        "torch.cat((v1, v2)).amin().signbit()]", ((1,),)),
    "what a norm of one element leaves": of(
        "v0 = F.layer_norm(F.adaptive_avg_pool2d(x0, 1), (1,)).sum().is_nonzero()",
        ((5, 1, 3, 4), (12, 0, 4, 1), "bfloat16", "normal")),
    "what a norm of equal elements leaves": of("v0 = F.group_norm(x0, 1, bias=x1 * 0).logical_not()",
                                               ((1, 33), (33, 0), "float32", "normal"), ((33,),)),
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name):
    found, _ = judge.check(FOUND[name])
    assert not found, f"{found[0].kind}: {found[0].text}"


# ---- what a comparison has to see


def _planted(monkeypatch, change):
    """The differences of a program whose accelerated side is torch with a mistake."""

    def accelerate(function):
        def wrong(*arguments):
            return change(function(*arguments), arguments)

        return wrong

    monkeypatch.setattr(dycl, "accelerate", accelerate)
    monkeypatch.setattr(dycl, "stats", lambda site: {})
    made = of("v0 = x0 * 2\nv1 = v0[0]\nlog.append(float(v0.sum()))\nnote(log, v0)", ((3, 4),), returned=("v0", "v1"))
    return {d.kind for d in judge.check(made)[0]}


def _replaced(make):
    def change(result, arguments):
        result[0][0] = make(result[0][0])
        return result

    return change


def _raising(result, arguments):
    raise ValueError("x")


def _drawing(result, arguments):
    torch.rand(1)
    return result


def _writing(result, arguments):
    arguments[0][0, 0] = 9
    return result


def _printing(result, arguments):
    print("x")
    return result


def _logging(result, arguments):
    result[1][0] += 0.25
    return result


def _noting(result, arguments):
    result[1][1] = (*result[1][1][:5], 7, *result[1][1][6:])
    return result


def _unshared(result, arguments):
    result[0][1] = result[0][1].clone()
    return result


PLANTED = {
    "values": (_replaced(lambda x: x.index_fill_(1, torch.tensor([2]), 0.1)), {"values"}),
    "a value far in its digits": (_replaced(lambda x: x.add_(1e-4)), {"values"}),
    "NaN": (_replaced(lambda x: x.index_fill_(1, torch.tensor([2]), float("nan"))), {"values"}),
    "dtype": (_replaced(lambda x: x.double()), {"dtype", "aliasing"}),
    "strides": (_replaced(lambda x: x.clone().t().contiguous().t()), {"strides", "aliasing"}),
    "version": (_replaced(lambda x: x.add_(0)), {"version"}),
    "view": (_replaced(lambda x: x[:]), {"view"}),
    "a base": (_replaced(lambda x: x.detach()), {"base"}),
    "aliasing": (_unshared, {"aliasing", "view"}),
    "gradient": (_replaced(lambda x: x.requires_grad_()), {"requires_grad"}),
    "type": (_replaced(lambda x: x.numpy()), {"type"}),
    "structure": (_replaced(lambda x: [x]), {"structure"}),
    "error": (_raising, {"error"}),
    "random numbers": (_drawing, {"random state"}),
    "an argument": (_writing, {"values", "version"}),
    "printed": (_printing, {"printed"}),
    "a number": (_logging, {"values"}),
    "a note": (_noting, {"noted"}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mistakes_are_seen(name, monkeypatch):
    change, kinds = PLANTED[name]
    assert kinds & _planted(monkeypatch, change)


def test_torch_itself_does_not_differ(monkeypatch):
    assert not _planted(monkeypatch, lambda result, arguments: result)


def test_rounding_is_no_difference_and_a_wrong_digit_is():
    made = of("v0 = F.softmax(x0 @ x1, -1)", ((9, 33), None, "float32", "normal"), ((33, 7), None, "float32", "normal"))
    (eager, _), (again, _) = (next(compare.outcomes(made, False)) for _ in range(2))
    place = ("result", 0, 0)
    difference = compare.Difference("values", 0, "", place)
    eps = float(np.finfo(np.float32).eps)
    again.result[0][0] *= 1 + 4 * eps
    assert not judge.Judge(made).counts(difference, eager, again)
    again.result[0][0][3, 2] *= 1 + 1000 * eps
    assert judge.Judge(made).counts(difference, eager, again)


def test_a_noted_size_that_rounding_chooses_is_no_difference_and_another_is():
    made = of("v0 = x0 * 2\nv1 = x0.masked_select(x0.sin() ** 2 + x0.cos() ** 2 > 1)\nnote(log, v1)",
              ((9, 33), None, "float32", "normal"))
    eager, _ = next(compare.outcomes(made, False))
    size, stride = ("result", 1, 0, 0, 0), ("result", 1, 0, 1, 0)
    assert not judge.Judge(made).counts(compare.Difference("noted", 0, "", size), eager, eager)
    assert judge.Judge(made).counts(compare.Difference("noted", 0, "", stride), eager, eager)


def test_rounding_beside_an_infinite_part_is_no_difference_and_a_wrong_digit_is():
    made = of("v0 = torch.fft.rfft(x0 @ x1)", ((9, 33),), ((33, 7),))
    (eager, _), (ours, _) = (next(compare.outcomes(made, False)) for _ in range(2))
    difference, eps = compare.Difference("values", 0, "", ("result", 0, 0)), float(np.finfo(np.float32).eps)
    decided = judge.Judge(made)
    for outcome in (eager, ours, decided.double(0), *decided.runs(0, judge.MORE).values()):
        x = outcome[difference.where] if isinstance(outcome, dict) else outcome.result[0][0]
        x[3].real.fill_(float("inf"))
    ours.result[0][0][3].imag.mul_(1 + 4 * eps)
    assert not decided.counts(difference, eager, ours)
    ours.result[0][0][3].imag.mul_(1 + 1000 * eps)
    assert decided.counts(difference, eager, ours)
    ours.result[0][0].copy_(eager.result[0][0])[3].real.fill_(-float("inf"))
    assert decided.counts(difference, eager, ours)


CHOICES = {
    "two": (lambda x, y: torch.maximum(x, y), True),
    "two in place": (lambda x, y: x.clone().clamp_(max=y), True),
    "a reduction": (lambda x, y: torch.stack((x, y)).amin(0), True),
    "a reduction into two": (
        lambda x, y: torch.max(torch.stack((x, y)), 0, out=(torch.empty(32), torch.empty(32, dtype=torch.int64)))[0],
        True),  # fmt: skip
    "a number": (lambda x, y: torch.cat((x, y)).clamp(-1.0, 1.0), False),
    "zeros of one sign": (lambda x, y: torch.maximum(x, x.abs()), False),
}


@pytest.mark.parametrize("name", CHOICES)
def test_noise_turns_zeros_that_meet_others_only(name):
    f, turns = CHOICES[name]
    seen = []
    for run in 1, 2, 3:  # all up, all down, at random
        with noise.Noise(1, run):
            seen.append(int(f(torch.zeros(32), -torch.zeros(32)).signbit()[:32].sum()))
    assert seen[:2] == [0, 32] and 0 < seen[2] < 32 if turns else len(set(seen)) == 1


def test_noise_leaves_errors_as_they_are():
    with pytest.raises(RuntimeError) as plain:
        torch.maximum(torch.zeros(2), torch.zeros(3))
    with pytest.raises(RuntimeError) as noisy, noise.Noise(1, 1):
        torch.maximum(torch.zeros(2), torch.zeros(3))
    assert str(plain.value) == str(noisy.value)


@pytest.mark.parametrize("function", [torch.nn.functional.softplus, torch.lgamma], ids=lambda f: f.__name__)
def test_equal_elements_stay_equal_where_results_are_rounded_once(function):
    x = torch.randn(1001, generator=torch.Generator().manual_seed(1)).repeat(2)  # each at two places of a vector
    with noise.Noise(1, noise.CORRECT):
        y = function(x)
    assert torch.equal(y[:1001], y[1001:]) and torch.allclose(y, function(x))


@pytest.mark.parametrize("terms, counts", [((3e38, 1e38, -2e38), False), ((3e37, 1e37, -2e37), True)])
def test_a_sum_that_overflows_on_the_way_may_be_infinite(terms, counts):
    made = of("v0 = x0 @ x1", ((1, 3),), ((3, 1),))

    def outcome(result):
        (found, _), = [next(compare.outcomes(made, False))]
        found.result[0][0].fill_(result)
        return found

    ninth = min(noise.OVERFLOWS)
    with noise.Noise(1, ninth):
        moved = torch.tensor([terms]) @ torch.ones(3, 1)
    assert bool(moved.isfinite().all()) == counts
    finite, infinite = (outcome(x) for x in (sum(terms), float("inf")))
    decided = judge.Judge(made)
    decided.made["noisy", 0] = {k: judge._seen(outcome(float(moved) if k == ninth else sum(terms)))
                                for k in range(1, judge.MORE + 1)}
    assert decided.counts(compare.Difference("values", 0, "", ("result", 0, 0)), finite, infinite) == counts


@pytest.mark.parametrize("step, counts", [("x0.nan_to_num().sum()", False), ("torch.var_mean(x0)[1]", False),
                                          ("x0.nan_to_num(0, 1, -1).sum()", True), ("x0.amax()", True),
                                          ("torch._C._nn.gelu(torch.full((2, 3), -np.inf))[0, 0]", False),
                                          ("torch._C._nn.gelu_(torch.full((2, 3), -np.inf))[0, 0]", False)])
@pytest.mark.parametrize("asked", ["{} > 0", "{} >= 1e38", "bool({} < 0)", "{}.isnan()", "{}.isinf() * 2"])
def test_what_hangs_on_the_order_of_sums_is_followed_through_comparisons(step, counts, asked):
    made = of("v0 = " + asked.format(step), ((8, 16), None, "float32", "special"))
    (found, _), = [next(compare.outcomes(made, False))]
    (other, _), = [next(compare.outcomes(made, False))]
    value = found.result[0][0]
    other.result[0][0] = value ^ True if isinstance(value, bool) or value.dtype == torch.bool else 2 - value
    assert judge.Judge(made).counts(compare.Difference("values", 0, "", ("result", 0, 0)), found, other) == counts


@pytest.mark.parametrize("call", ["x.addmm_(a, b)", "torch.addmm(x, a, b, out=x)", "torch.mm(a, b, out=x)"])
def test_terms_that_cancel_move_what_a_product_writes(call):
    """The result is 1, its terms 1e9: it is known to 1e-7, not to 1e-16."""
    found = set()
    for seed in range(8):
        x = torch.zeros(1, 1, dtype=torch.float64)
        a, b = torch.tensor([[1e9, 1.0, 1e9]], dtype=torch.float64), torch.tensor([[-0.5], [1.0], [0.5]]).double()
        with noise.Noise(seed, 3):
            eval(call, {"torch": torch, "x": x, "a": a, "b": b})
        found.add(x.item())
    assert 1e-9 < max(abs(x - 1) for x in found) < 1e-6


@pytest.mark.parametrize("end, counts", [("v1.backward(torch.ones_like(v1))", False), ("v1.detach()", True)])
def test_gradients_where_a_pass_raises_are_a_known_kind(end, counts):
    made = of(f"v1 = x0 * x0\nx0.detach()[0] = 3\n{end}\nv0 = 1", ((2, 3),), grad=True, mode="grad")
    found = compare.Difference("type", 0, "('input', 0, 'grad'): <class 'torch.Tensor'> and <class 'NoneType'>")
    assert (known.known(made, found) is None) == counts


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("values", ["normal", "grid", "special", "subnormal"])
def test_float64_sees_the_same_inputs(values, dtype):
    made = of("v0 = x0 * 2", ((9, 33), None, dtype, values))
    plain, wide = (compare.build(x)[2] for x in (made, judge._Doubled(made)))
    torch.set_default_dtype(torch.float64)
    try:
        doubles = wide(0)[0]
    finally:
        torch.set_default_dtype(torch.float32)
    assert doubles.dtype == torch.float64
    assert torch.equal(doubles.nan_to_num(7), plain(0)[0].double().nan_to_num(7))


def test_float64_sees_the_same_modules():
    made = program.Program(modules=("torch.nn.Linear(3, 4).to(torch.bfloat16)",))
    plain, wide = (compare.build(x)[1][0] for x in (made, judge._Doubled(made)))
    assert torch.equal(plain.weight.double(), wide.double().weight)


@pytest.mark.parametrize("draw", ["", "\nv1 = torch.multinomial(torch.softmax(x2, -1), 1)"])
def test_a_mistake_of_torch_is_no_difference(draw):
    """float64 tells whose it is, whether or not the program draws random numbers elsewhere."""
    made = of("v0 = x0 @ x1 + (x0.element_size() == 4)" + draw, ((9, 33),), ((33, 7),), ((4,),))
    (eager, _), (ours, _) = (next(compare.outcomes(made, False)) for _ in range(2))
    difference = compare.Difference("values", 0, "", ("result", 0, 0))
    ours.result[0][0] -= 1
    assert not judge.Judge(made).counts(difference, eager, ours)
    ours.result[0][0] += 20  # more than NEARER times the mistake
    assert judge.Judge(made).counts(difference, eager, ours)


def test_what_is_drawn_is_not_judged_by_float64():
    made = of("v0 = x0 @ x1 + torch.rand(9, 7)", ((9, 33),), ((33, 7),))
    (eager, _), (ours, _) = (next(compare.outcomes(made, False)) for _ in range(2))
    ours.result[0][0] += 1e-3
    assert judge.Judge(made).counts(compare.Difference("values", 0, "", ("result", 0, 0)), eager, ours)
