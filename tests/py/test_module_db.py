"""Every module of torch's own module database, in eager and accelerated: outputs, what became of the inputs, the state
afterwards (running statistics count), gradients of parameters and inputs, and errors.

Each sample runs as an accelerated module on plain inputs, and inside an accelerated function that makes the inputs and
reads the outputs with recorded operators; in training and in evaluation mode, with and without gradients; three calls
each on one module, whose state goes on from call to call. By default a fixed subset of the samples runs,
DYCL_TEST_FULL=1 runs all. What is known to differ stands in known.py."""

import copy
import warnings

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence
from torch.testing._internal.common_modules import module_db

import dycl
from known import is_known, marks
from suite import one_thread  # noqa: F401 (a fixture)
from suite import FULL, RUNS, compare, copy_of, is_strided, lot, map_tensors, tensors_of

# sums of products in another order, through two layers at most, and once more in training mode through statistics of a
# few elements
BOUNDS = {torch.float32: (2e-5, 1e-4), torch.float64: (1e-9, 1e-10)}


def _cases():
    for info in module_db:
        for dtype in (torch.float32, torch.float64):
            if dtype not in info.supported_dtypes("cpu"):
                continue
            for training in (True, False):
                name = f"{info.formatted_name}-{str(dtype).removeprefix('torch.')}-{'train' if training else 'eval'}"
                if FULL or dtype == torch.float32 or is_known("module_db", name) or lot(name) % 4 == 0:
                    yield pytest.param(info, dtype, training, id=name, marks=marks("module_db", name))


def _samples(info, dtype, training, grad, name):
    torch.manual_seed(1)
    samples = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=grad, training=training)
    if FULL or is_known("module_db", name):
        return samples
    return [samples[i] for i in sorted(sorted(range(len(samples)), key=lambda i: lot(name, grad, i))[:3])]


def _plain(module, args, kwargs):
    return module(*args, **kwargs)


def _lazy(x):
    return map_tensors(lambda t: t + 0 if is_strided(t) and t.dtype.is_floating_point else t, x)


def _within(module, args, kwargs):
    result = module(*_lazy(args), **_lazy(kwargs))
    return result, [t * 2 + 1 for t in tensors_of(list(result) if isinstance(result, PackedSequence) else result)
                    if t.dtype.is_floating_point]


def _backward(tensors, module):
    """Gradients of all inputs and parameters; what has no history has none."""
    total = sum(t.sum() for t in tensors if t.requires_grad)
    if isinstance(total, torch.Tensor):
        total.backward()
    gradients = [p.grad for p in module.parameters()]
    module.zero_grad()
    return gradients


def _call(function, module, sample, grad):
    torch.manual_seed(7)
    inputs = map_tensors(copy_of, (sample.forward_input.args, sample.forward_input.kwargs))
    gradients = []
    with warnings.catch_warnings(), torch.set_grad_enabled(grad):
        warnings.simplefilter("ignore")
        try:
            result, error = function(module, *inputs), None
            if grad:
                gradients = _backward(tensors_of(result), module), [x.grad for x in tensors_of(inputs) if x.is_leaf]
        except Exception as e:  # noqa: BLE001
            result, error = None, e
    state = module.state_dict(), [b for b in module.buffers()], module.training
    return ((result, *state), inputs, error), (gradients, None, error)


def _check(function, accelerate, module, sample, grad, what):
    module, ours = copy.deepcopy(module), copy.deepcopy(module)
    accelerated = accelerate(ours)
    for i in range(RUNS):
        want = _call(function, module, sample, grad)
        got = _call(accelerated, ours, sample, grad)
        try:
            for w, g, versions in zip(want, got, (True, False)):  # the second are gradients
                compare(lambda dtype: BOUNDS.get(dtype, (0, 0)), w, g, versions=versions)
        except AssertionError as error:
            raise AssertionError(f"call {i}, {what}\n{error}") from None


def _accelerated_module(module):
    dycl.accelerate(module)
    return _plain


def _accelerated_function(module):
    return dycl.accelerate(_copy_of_within())


def _copy_of_within():
    return lambda *arguments: _within(*arguments)  # a site of its own


@pytest.mark.parametrize("info, dtype, training", list(_cases()))
def test_module(info, dtype, training, request):
    name = request.node.callspec.id
    for grad in (False, True):
        for sample in _samples(info, dtype, training, grad, name):
            torch.manual_seed(3)
            module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs).to(dtype)
            module.train(training)
            what = (f"{'with' if grad else 'without'} gradients, {sample.desc} "
                    f"{sample.constructor_input.args} {sample.constructor_input.kwargs}")
            _check(_plain, _accelerated_module, module, sample, grad, f"module {what}")
            _check(_within, _accelerated_function, module, sample, grad, f"within {what}")


@pytest.mark.parametrize("norm_first", [False, True])
def test_padded_encoder(norm_first):
    """Without gradients torch's encoder computes with nested tensors, which leave zeros where the input is padded."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=norm_first)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        encoder = torch.nn.TransformerEncoder(layer, 2).eval()
    x, padding = torch.randn(3, 5, 8), torch.arange(5) >= torch.tensor([[5], [3], [1]])

    def program(x, padding):
        y = encoder(x + 0, src_key_padding_mask=padding)
        return y * 2, (y == 0).all(-1)

    with torch.no_grad():
        eager = program(x, padding)
        assert norm_first or eager[1].any()
        for target in (dycl.accelerate(program), dycl.accelerate(program)):
            ours = target(x, padding)
            assert torch.equal(ours[1], eager[1])
            torch.testing.assert_close(ours[0], eager[0])
        dycl.accelerate(encoder)
        torch.testing.assert_close(encoder(x, src_key_padding_mask=padding) * 2, eager[0])
