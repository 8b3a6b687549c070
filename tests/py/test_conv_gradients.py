"""Gradients of convolutions by convolutions: random sizes, windows, groups and layouts against torch's, what is wanted
of image, weight and bias, gradients of gradients, and what is left to torch's kernel."""

import random
import textwrap

import pytest
import torch
import torch.nn.functional as F

import dycl
from isa import VECTOR_ISAS, run_with
from suite import FULL, one_thread  # noqa: F401 (a fixture)
from test_environment import start
from test_gradients import agree


def _drawn(rng, transposed):
    groups = rng.choice([1, 1, 1, 2, 4, 12, 16])  # many: one channel or two of each
    most = 2 if groups > 4 else 4
    inside, outside = (groups * rng.choice(many[:most]) for many in ([1, 2, 3, 8], [1, 2, 5, 16]))
    kernel = rng.choice([1, 2, 3, 3, 5, 7]), rng.choice([1, 2, 3, 3, 7])
    options = {"stride": (rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2])), "groups": groups,
               "padding": (rng.randint(0, 2), rng.randint(0, 3)), "dilation": (rng.choice([1, 1, 2]), 1)}
    if transposed:
        options["output_padding"] = tuple(rng.randrange(max(options["stride"][i], options["dilation"][i]))
                                          for i in range(2))
    x = torch.randn(rng.choice([1, 2, 4]), inside, rng.randint(6, 14), rng.randint(6, 14))
    sizes = (inside, outside // groups) if transposed else (outside, inside // groups)
    weight, bias = torch.randn(*sizes, *kernel), torch.randn(outside) if rng.random() < 0.7 else None
    last = {"memory_format": torch.channels_last}
    x, weight = (t.to(**last) if rng.random() < 0.15 else t for t in (x, weight))
    wanted = [rng.random() < 0.7 for _ in range(3)]
    wanted[rng.randrange(2)] = True
    return (x, weight, bias), options, wanted


def _gradients(run, operands, options, wanted, twice):
    leaves = [t if t is None else t.detach().clone().requires_grad_(want) for t, want in zip(operands, wanted)]
    result = run(*leaves, **options)
    leaves = [t for t in leaves if t is not None and t.requires_grad]
    cotangent = (torch.arange(result.numel()) * 0.7).sin().view(result.shape).requires_grad_(twice)
    first = torch.autograd.grad(result, leaves, cotangent, create_graph=twice)
    if twice:
        total = sum((g * (torch.arange(g.numel()) * 0.3).cos().view(g.shape)).sum() for g in first)
        first += torch.autograd.grad(total, [*leaves, cotangent], allow_unused=True)
    return [result.detach(), *first]


def _compare(program, want, operands, options, wanted, twice=False, times=3):
    run = dycl.accelerate(program)
    for nth in range(times):
        got = _gradients(run, operands, options, wanted, twice)
        what = [t if t is None else (tuple(t.shape), t.stride()) for t in operands], options, wanted, nth
        assert all(agree(a, b) for a, b in zip(want, got, strict=True)), what
    return run


@pytest.mark.parametrize("transposed", [False, True], ids=["conv2d", "conv_transpose2d"])
@pytest.mark.parametrize("seed", range(20 if FULL else 4))
def test_random_convolutions(transposed, seed):
    rng = random.Random(f"{seed} {transposed}")
    torch.manual_seed(seed)
    function = F.conv_transpose2d if transposed else F.conv2d
    for _ in range(15):
        operands, options, wanted = _drawn(rng, transposed)
        twice = rng.random() < 0.3
        try:
            want = _gradients(function, operands, options, wanted, twice)
        except RuntimeError:  # the windows do not fit
            continue
        _compare(lambda x, w, b, **options: function(x * 1, w, b, **options), want, operands, options, wanted, twice)


def _whole(rng, transposed):
    """Each window sees the whole image; now and then it is a pixel too small, or there is padding."""
    kernel, padding = (rng.choice([1, 1, 2, 3, 4]), rng.choice([1, 1, 2, 5])), rng.choice([0, 0, 0, 0, 1])
    inside, outside = rng.choice([1, 3, 16, 40]), rng.choice([1, 1, 5, 24])
    size = (1, 1) if transposed else [k + rng.choice([0, 0, 0, 1]) for k in kernel]
    options = {"stride": rng.choice([1, 2, 5]), "padding": padding, "dilation": rng.choice([1, 1, 1, 2])}
    x = torch.randn(rng.choice([1, 2, 7, 60]), inside, *size)
    weight = torch.randn(*((inside, outside) if transposed else (outside, inside)), *kernel)
    bias = torch.randn(outside) if rng.random() < 0.5 else None
    last = {"memory_format": torch.channels_last}
    x, weight = (t.to(**last) if rng.random() < 0.2 else t for t in (x, weight))
    wanted = [rng.random() < 0.7 for _ in range(3)]
    wanted[rng.randrange(2)] = True
    return (x, weight, bias), options, wanted


@pytest.mark.parametrize("transposed", [False, True], ids=["conv2d", "conv_transpose2d"])
@pytest.mark.parametrize("seed", range(20 if FULL else 4))
def test_whole_windows(transposed, seed):
    """Convolutions that are products: the first layer of a generator, the last one of a discriminator."""
    rng = random.Random(f"whole {seed} {transposed}")
    torch.manual_seed(seed)
    function = F.conv_transpose2d if transposed else F.conv2d
    for _ in range(25):
        operands, options, wanted = _whole(rng, transposed)
        end = rng.choice([lambda y: y, torch.relu, torch.sigmoid])

        def program(x, w, b, **options):
            return end(function(x * 1, w, b, **options))

        try:
            want = _gradients(program, operands, options, wanted, False)
        except RuntimeError:  # the windows do not fit
            continue
        _compare(program, want, operands, options, wanted)


def test_pixels_drawn():
    """Windows of a single pixel, whose weights' gradients are products or oneDNN's."""
    rng = random.Random("pixels")
    torch.manual_seed(0)
    for _ in range(12):
        inside, outside, last = rng.choice([8, 17, 32]), rng.choice([8, 12, 40]), rng.choice([3, 8, 24])
        size = rng.choice([1, 2, 5]), 4, rng.randint(2, 30), rng.randint(2, 17)
        options = {"stride": rng.choice([1, 1, 2])}
        operands = [torch.randn(size), torch.randn(inside, 4, 3, 3), torch.randn(outside, inside, 1, 1),
                    torch.randn(last, outside, 1, 1)]
        between = rng.choice([torch.relu, torch.tanh, lambda y: y, lambda y: y.contiguous()])

        def program(x, first, second, third, stride):
            return F.conv2d(between(F.conv2d(F.conv2d(x, first, padding=1), second, stride=stride)), third)

        wanted = [True] * 4
        want = _gradients(program, operands, options, wanted, False)
        run = _compare(program, want, operands, options, wanted, times=4)
        assert "weight's gradient" in dycl.explain(run)


@pytest.mark.parametrize("way", range(2))
@pytest.mark.parametrize("isa", VECTOR_ISAS)
def test_ways_to_single_pixels(isa, way):
    done = run_with(isa, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "pixels_drawn", timeout=300,
                    DYCL_MEASURE=str(way), DYCL_CHOOSE="0", DYCL_PROFILE="0")
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def _strides_differ(rng, transposed):
    function = F.conv_transpose2d if transposed else F.conv2d
    (x, weight, _), options, _ = _drawn(rng, transposed)
    if rng.random() < 0.3:
        x = x[:, :, :1, :1] if min(weight.shape[2:]) == max(weight.shape[2:]) == 1 else x[:1]
    x, weight = (t.contiguous(memory_format=rng.choice([torch.contiguous_format, torch.channels_last]))
                 for t in (x, weight))
    end = rng.choice([lambda y: y, lambda y: y.permute(0, 2, 3, 1).softmax(-1), lambda y: y.mean((2, 3))])

    def program(a, b, **options):
        return end(function(a * 1, b, **options))

    wanted = True, True
    try:
        want = _gradients(program, (x, weight), options, wanted, False)
    except RuntimeError:  # a window larger than the image
        return None
    got = _gradients(dycl.accelerate(program), (x, weight), options, wanted, False)
    differ = [(g.stride(), w.stride()) for g, w in zip(got, want) if g.stride() != w.stride()]
    return differ and (differ, x.shape, x.stride(), weight.shape, weight.stride(), options)


@pytest.mark.parametrize("transposed", [False, True], ids=["conv2d", "conv_transpose2d"])
@pytest.mark.parametrize("threads", [1, 2])
def test_how_gradients_lie(transposed, threads):
    """In dimensions of size 1 too, of which there are many here: one channel, one pixel, windows of one."""
    rng = random.Random(f"{threads} {transposed}")
    torch.set_num_threads(threads)
    try:
        for _ in range(600 if FULL else 60):
            assert not (found := _strides_differ(rng, transposed)), found
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("isa", VECTOR_ISAS)
def test_every_instruction_set(isa):
    done = run_with(isa, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "random and 0", timeout=300)
    assert done.returncode == 0, done.stdout


def test_other_ranks():
    torch.manual_seed(0)
    for function, x, weight in ((F.conv1d, (2, 3, 17), (5, 3, 4)), (F.conv2d, (3, 9, 9), (5, 3, 3, 3)),
                                (F.conv_transpose1d, (2, 3, 17), (3, 5, 4)),
                                (F.conv3d, (2, 3, 5, 6, 7), (4, 3, 2, 2, 2))):
        operands, wanted = (torch.randn(x), torch.randn(weight), None), [True, True, False]
        want = _gradients(function, operands, {"stride": 2, "padding": 1}, wanted, False)
        run = dycl.accelerate(lambda x, w, b, **options: function(x * 1, w, b, **options))
        for _ in range(3):
            got = _gradients(run, operands, {"stride": 2, "padding": 1}, wanted, False)
            assert all(agree(a, b) for a, b in zip(want, got, strict=True)), function


def test_torch_is_not_asked():
    said = start(textwrap.dedent("""
        import torch, torch.nn.functional as F, dycl
        x, w = torch.randn(2, 4, 9, 9, requires_grad=True), torch.randn(8, 4, 3, 3, requires_grad=True)
        one, b = torch.randn(4, 8, 1, 1, requires_grad=True), torch.randn(8, requires_grad=True)
        run = dycl.accelerate(lambda: F.conv2d(F.conv2d(x, w, b, 2), one, stride=2).sum())
        run().backward()
        run()  # what a backward pass logs is shown behind the next call
        """), DYCL_CHOOSE="0", DYCL_LOG="graph").stderr
    assert said.count("conv2d_back") and "conv_transpose2d" in said and "aten_convolution_backward" not in said


def _said(x, weight, **options):
    """What a convolution's backward pass runs, with all three gradients wanted."""
    leaves = [t.requires_grad_() for t in (x, weight, torch.randn(len(weight)))]
    run = dycl.accelerate(lambda: F.conv2d(leaves[0] * 1, *leaves[1:], **options).sum())
    for _ in range(3):
        run().backward()
    return dycl.explain(run)


@pytest.mark.parametrize("groups, channels, window", [(32, 1, 7), (48, 1, 5), (4, 4, 3), (3, 10, 5)])
def test_groups_have_a_kernel(groups, channels, window):
    """oneDNN's own choice of layouts leaves these to a product for each group and image: three times as slow."""
    x, weight = torch.randn(2, groups * channels, 12, 12), torch.randn(groups * channels, channels, window, window)
    said = _said(x, weight, padding=window // 2, groups=groups)
    kernels = [line for line in said.splitlines() if "weight's gradient" in line]
    assert kernels and not any("gemm" in line or "ref" in line for line in kernels), said


@pytest.mark.parametrize("of_weight", [False, True])
def test_channels_last_goes_back_by_convolutions(of_weight):
    """Image, weight or both in channels last: no kernel of torch's, and gradients that lie as its own."""
    last = torch.channels_last
    x, weight = torch.randn(2, 8, 9, 9).to(memory_format=last), torch.randn(16, 8, 3, 3)
    weight = weight.to(memory_format=last) if of_weight else weight
    said = _said(x, weight, padding=1, stride=2)
    assert "aten_convolution_backward" not in said and "conv_transpose2d" in said and "conv2d_back" in said, said


def test_a_bias_does_not_cost_a_weight():
    """torch computes both in one go: where the image goes back through its kernel, it is asked for nothing else."""
    x = torch.randn(8, 2, 9, 9).transpose(0, 1)
    leaves = [x.requires_grad_(), torch.randn(4, 8, 3, 3).requires_grad_(), torch.randn(4).requires_grad_()]
    run = dycl.accelerate(lambda: F.conv2d(leaves[0], *leaves[1:]).relu())
    for _ in range(3):
        result = run()
        result.backward(torch.ones_like(result))
    said = dycl.explain(run)
    assert said.count("aten_convolution_backward") == 1 and "conv2d_back" in said and "sum f32" in said, said


def test_gradients_lie_as_with_this_number_of_threads():
    """With one thread torch takes another kernel; one function may be called with one and with two."""
    def of(f):
        seen = []
        for threads in (1, 2, 1, 2):
            torch.set_num_threads(threads)
            x = torch.ones(2, 8, 6, 6).to(memory_format=torch.channels_last).requires_grad_()
            w = torch.ones(4, 8, 1, 1, requires_grad=True)
            y = f(x, w)
            seen.append([g.stride() for g in torch.autograd.grad(y, (x, w), torch.ones_like(y))])
        return seen

    before = torch.get_num_threads()
    try:
        run = dycl.accelerate(lambda x, w: F.conv2d(x, w))
        for _ in range(2):
            assert of(run) == of(F.conv2d)
    finally:
        torch.set_num_threads(before)
