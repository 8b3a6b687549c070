"""What torch says about the program's own lines and arguments: anomaly mode's traceback, attributes that cannot be set,
arguments that are refused whatever the values are."""

import warnings

import dycl
import pytest
import torch
import torch.nn.functional as F


def test_anomaly_mode_names_the_line():
    def program(x):
        with torch.autograd.detect_anomaly():
            y = x * 1
            z = y.sqrt()  # of less than zero
            total = z.sum()
            with pytest.raises(RuntimeError, match="SqrtBackward0"):
                total.backward()
        return (x * 2).sum()  # recorded again

    texts = []
    for run in (program, dycl.accelerate(program)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(torch.tensor([-1.0, 2.0], requires_grad=True))
        text = str(caught[-1].message)
        texts.append(text[text.index("in program"):])
    assert "y.sqrt()" in texts[0] and texts[1] == texts[0]


NAMES = "shape dtype device layout is_leaf ndim T mT H itemsize is_cpu grad_fn _base is_sparse is_meta".split()


def test_attributes_that_cannot_be_set():
    def program(x):
        y, said = x + 1, []
        for name in NAMES:
            with pytest.raises(AttributeError) as error:
                setattr(y, name, 1)
            said.append(str(error.value))
        return said

    with torch.no_grad():
        assert dycl.accelerate(program)(torch.ones(2, 2)) == program(torch.ones(2, 2))


REFUSED = {
    "grouped attention of matrices": lambda x: F.scaled_dot_product_attention(x, x, x, enable_gqa=True),
    "cosine below zero": lambda x: F.cosine_similarity(x, x, -1, -1.0),
    "cosine of nan": lambda x: F.cosine_similarity(x, x, -1, float("nan")),
}  # fmt: skip


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, trained):
    def outcome(function):
        try:
            return function(torch.arange(12.0).view(3, 4).requires_grad_(trained)).tolist()
        except Exception as error:  # of any kind, to be compared
            return type(error), str(error)

    want, fast = outcome(REFUSED[name]), dycl.accelerate(REFUSED[name])
    for _ in range(2):
        assert outcome(fast) == want
