"""torch's own tests, redirected by `TestCase.compile_fn`, the hook by which torch runs its tests through a compiler:
here each test's whole body runs as one accelerated function, first as it is and then once more in eager torch, with the
same outcome.

torch's wheel carries no test files. What it does carry of tests that run in one process on a CPU are the bodies of its
module tests (torch/testing/_internal/common_nn.py: reference functions, non-contiguous inputs, pickling, gradcheck and
gradgradcheck, in-place forms), which test/test_nn.py makes tests of; the few helpers that stand in that file are
written here anew. Its distributed tests need process groups, and fx/passes/tests has no tensors.

By default a fixed subset runs, DYCL_TEST_FULL=1 runs all."""

import unittest
import unittest.mock
import warnings

import pytest
import torch
from torch.testing._internal import common_nn, common_utils

import dycl
from known import is_known, marks
from suite import FULL, lot


class Redirected(common_nn.NNTestCase):
    """What common_nn's bodies ask of a test case, and the redirection."""

    accelerated = None

    def compile_fn(self, fn, backend, nopython):
        self.accelerated = dycl.accelerate(lambda result: fn(result=result))
        return lambda result: self.accelerated(result)

    def _forward(self, module, input):
        with common_utils.freeze_rng_state():
            return module(*input) if isinstance(input, tuple) else module(input)

    def _backward(self, module, input, output, grad_output, create_graph=False):
        output.backward(grad_output, retain_graph=True, create_graph=create_graph)
        if isinstance(input, tuple):
            return tuple(None if x.grad is None else x.grad.data for x in input)
        return None if input.grad is None else input.grad.data

    def _get_parameters(self, module):
        parameters = list(module.parameters())
        return parameters, [p.grad for p in parameters]

    def _zero_grad_parameters(self, module):
        for p in module.parameters():
            if p.grad is not None:
                with torch.no_grad():
                    p.grad.zero_()
                p.grad.detach_()

    def run_body(self):
        self.body(self)


def _bodies():
    seen = {}
    for parameters in [*common_nn.module_tests, *common_nn.get_new_module_tests()]:
        parameters = dict(parameters)
        if "constructor" not in parameters:
            name = parameters.pop("module_name")
            parameters["constructor"] = getattr(torch.nn, name)
        body = common_nn.NewModuleTest(**parameters)
        if not body.test_cpu:
            continue
        name = body.get_name()
        seen[name] = seen.get(name, 0) + 1
        name = f"{name}-{seen[name]}"
        if FULL or is_known("torch tests", name) or lot(name) % 12 == 0:
            yield pytest.param(body, id=name, marks=marks("torch tests", name))


def _outcome(body, redirected):
    case = Redirected("run_body")
    case.body = body
    result = unittest.TestResult()
    with unittest.mock.patch.object(common_utils, "TEST_WITH_TORCHDYNAMO", redirected), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case.run(result)
    problems = [text.strip().splitlines()[-1] for _, text in (*result.failures, *result.errors)]
    assert result.testsRun == 1 and redirected == (case.accelerated is not None)
    if redirected:
        assert dycl.stats(case.accelerated)["calls"] == 1
    return problems, len(result.skipped), len(result.expectedFailures)


@pytest.mark.parametrize("body", list(_bodies()))
def test_module_test(body):
    got = _outcome(body, True)
    if got[0]:
        assert got == _outcome(body, False)
