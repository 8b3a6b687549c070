"""What explain says about the passes: the graph before and after."""

import re

import torch
import torch.nn.functional as F

import dycl


def sizes(function, *arguments):
    """(operators, bytes, operators afterwards, blocks, bytes afterwards) of each segment with a tuned plan."""
    with torch.no_grad():
        accelerated = dycl.accelerate(function)
        for _ in range(3):
            accelerated(*arguments)
    text = dycl.explain(accelerated)
    return [tuple(map(int, found)) for found in
            re.findall(r"graph: (\d+) operators, (\d+) bytes between them, became (\d+) operators in (\d+) blocks, "
                       r"(\d+) bytes", text)]


def test_a_chain_is_one_block_with_nothing_between():
    # gelu, mul_add, tanh
    assert sizes(lambda x: torch.tanh(F.gelu(x) * 2 + 1), torch.randn(8, 16)) == [(4, 3 * 8 * 16 * 4, 3, 1, 0)]


def test_a_product_ends_a_block():
    weight = torch.randn(16, 16)
    assert sizes(lambda x: torch.tanh(F.linear(F.gelu(x) * 2, weight)),
                 torch.randn(8, 16)) == [(4, 3 * 8 * 16 * 4, 3, 3, 2 * 8 * 16 * 4)]


def test_rewriting_leaves_fewer_operators():
    found = sizes(lambda x: (x * torch.sigmoid(x) + -x).exp(), torch.randn(8, 16))
    assert found == [(5, 4 * 8 * 16 * 4, 3, 1, 0)]  # silu, sub, exp


def test_each_segment_has_its_own():
    def function(x):
        y = torch.tanh(x + 1)
        return torch.sigmoid(y * 2).sum() if y.sum().item() > 1e9 else torch.exp(y) * 3

    assert len(sizes(function, torch.randn(8, 16))) == 2
