"""The rows of the operator registry, read from its two .def files."""

import pathlib
import re

CSRC = pathlib.Path(__file__).resolve().parents[3] / "csrc"

# Rows that no call of torch records, with the reason. A test looks for their names in csrc/py and csrc/record.
NOT_RECORDED = {
    "fma": "the fast path of a normalisation's weight and bias (exec/tile/lower.c)",
    **dict.fromkeys("""relu_grad gelu_grad gelu_tanh_grad silu_grad relu6_grad hardswish_grad hardsigmoid_grad
    logsigmoid_grad selu_grad leaky_relu_grad threshold_grad below_grad hardshrink_grad elu_grad celu_grad
    softplus_grad""".split(), "made by gradients (grad/activation.c)"),
    **dict.fromkeys(("layer_norm_back", "rms_norm_back"), "made by gradients (grad/norm.c)"),
    **dict.fromkeys(("softmax_back", "log_softmax_back"), "made by gradients (grad/reduce.c)"),
    "conv2d_back": "made by gradients (grad/window.c)",
    "laid": "made at a flush, of what is kept for the backward pass (py/region/laid.c), and read by py/entry/second.c",
    **dict.fromkeys(("batch_norm_back", "group_norm_back"), "made by gradients (grad/norm.c)"),
    "max_pool2d_back": "made by gradients (grad/window.c)",
    "avg_pool2d_back": "made by gradients (grad/window.c)",
    "adaptive_avg_pool2d_back": "made by gradients (grad/window.c)",
    "recurrent_back": "made by gradients (grad/recurrent.c)",
}


def combined_rows():
    """Names of those that opt/combine.c makes of two others."""
    return re.findall(r"^DYCL_KERN_PAIR\((\w+),", (CSRC / "kern/kern.def").read_text(), re.MULTILINE)


NOT_RECORDED |= dict.fromkeys(combined_rows(), "made by opt/combine.c")


def rows():
    """Names of all rows, in the registry's order."""
    elementwise = re.findall(r"^DYCL_KERN_EW\((\w+),", (CSRC / "kern/kern.def").read_text(), re.MULTILINE)
    others = re.findall(r"^DYCL_OP\((\w+),", (CSRC / "ir/ops.def").read_text(), re.MULTILINE)
    return elementwise + combined_rows() + others


def recorded_rows():
    return [row for row in rows() if row not in NOT_RECORDED]
