"""The kernels of the other instruction sets: a selection of operators against eager."""

import os

import pytest
from isa import ISAS, run_with

from dycl import _core

HERE = os.path.dirname(__file__)
OPERATORS = """add mul div where clamp exp log tanh sigmoid erf pow remainder nn.functional.gelu nn.functional.silu sum mean prod amax argmax var cumsum
softmax log_softmax logsumexp linalg.vector_norm cat transpose gather index_select triu matmul addmm nn.functional.linear nn.functional.layer_norm
nn.functional.rms_norm nn.functional.group_norm nn.functional.conv2d nn.functional.max_pool2d nn.functional.adaptive_avg_pool2d
nn.functional.scaled_dot_product_attention nn.functional.embedding""".split()


@pytest.mark.parametrize("isa", ISAS)
def test_operators_with_the_kernels_of(isa):
    if isa == _core.info()["isa"]:
        pytest.skip("the kernels that the other tests use")
    command = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", os.path.join(HERE, "test_op_db.py"), "-k",
               "test_operator"]
    done = run_with(isa, *command, DYCL_TEST_OPERATORS=" ".join(OPERATORS), OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout[-6000:]
