"""What torch's graph saves for the backward pass is an error when it was written before, and nothing else is: each
operand and each result of functions whose operands want gradients or do not, in all combinations."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import dycl
from suite import one_thread  # noqa: F401 (a fixture)

dycl.accelerate(lambda: None)  # finds torch

CLASSES = torch.tensor([0, 2, -100, 1])
QKV = [(2, 2, 4, 8)] * 3
FUNCTIONS = {
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (6,), w, b), [(4, 6), (6,), (6,)]),
    "layer_norm without a bias": (lambda x, w: F.layer_norm(x, (6,), w), [(4, 6), (6,)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [(4, 6, 3), (6,), (6,)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, (6,), w), [(4, 6), (6,)]),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [(4, 6), (6,), (6,)]),
    "batch_norm, evaluation": (lambda x, w, b: F.batch_norm(x, torch.zeros(6), torch.ones(6), w, b),
                               [(4, 6), (6,), (6,)]),
    "instance_norm": (lambda x, w, b: F.instance_norm(x, None, None, w, b), [(4, 6, 3), (6,), (6,)]),
    "conv3d": (F.conv3d, [(2, 3, 4, 4, 4), (4, 3, 2, 2, 2), (4,)]),
    "conv_transpose3d": (F.conv_transpose3d, [(2, 3, 2, 2, 2), (3, 4, 2, 2, 2), (4,)]),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), [(2, 3, 4, 4, 4)]),
    "max_pool2d with its positions": (lambda x: F.max_pool2d(x, 2, return_indices=True)[0], [(2, 3, 4, 4)]),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 2), [(2, 3, 4, 4)]),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), [(2, 3, 4, 4, 4)]),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 2), [(2, 3, 4, 4, 4)]),
    "adaptive_avg_pool3d, mean": (lambda x: F.adaptive_avg_pool3d(x, 1), [(2, 3, 4, 4, 4)]),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), [(2, 3, 4, 4)]),
    "interpolate, volumes": (lambda x: F.interpolate(x, scale_factor=2), [(2, 3, 4, 4, 4)]),
    "pad, reflect": (lambda x: F.pad(x, (1, 1), mode="reflect"), [(2, 3, 4)]),
    "pad, replicate": (lambda x: F.pad(x, (1, 1), mode="replicate"), [(2, 3, 4)]),
    "pad, circular": (lambda x: F.pad(x, (1, 1), mode="circular"), [(2, 3, 4)]),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), [(2, 4, 4, 4)]),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), [(2, 4, 4, 4)]),
    "unfold": (lambda x: F.unfold(x, 2), [(2, 4, 4, 4)]),
    "fold": (lambda x: F.fold(x, 4, 2, stride=2), [(2, 8, 4)]),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), [(2, 3, 4, 4), (2, 5, 5, 2)]),
    "affine_grid": (lambda x: F.affine_grid(x, [2, 3, 4, 4], align_corners=False), [(2, 2, 3)]),
    "linear": (F.linear, [(4, 6), (5, 6), (5,)]),
    "conv2d": (F.conv2d, [(2, 3, 6, 6), (4, 3, 2, 2), (4,)]),
    "prelu": (F.prelu, [(4, 6), (6,)]),
    "bilinear": (F.bilinear, [(4, 3), (4, 5), (2, 3, 5), (2,)]),
    "attention": (F.scaled_dot_product_attention, QKV),
    "attention with a mask": (F.scaled_dot_product_attention, [*QKV, (4, 4)]),
    "mul": (torch.mul, [(4, 6), (6,)]),
    "div": (torch.div, [(4, 6), (6,)]),
    "pow": (lambda a, b: torch.pow(a.abs() + 1, b), [(4, 6), (6,)]),
    "pow of a number": (lambda a: torch.pow(2.0, a), [(4, 6)]),
    "pow to a number": (lambda a: torch.pow(a, 3), [(4, 6)]),
    "atan2": (torch.atan2, [(4, 6), (6,)]),
    "hypot": (torch.hypot, [(4, 6), (6,)]),
    "lerp": (torch.lerp, [(4, 6)] * 3),
    "lerp by a number": (lambda a, b: torch.lerp(a, b, 0.3), [(4, 6)] * 2),
    "addcmul": (torch.addcmul, [(4, 6), (4, 6), (6,)]),
    "addcdiv": (torch.addcdiv, [(4, 6), (4, 6), (6,)]),
    "maximum": (torch.maximum, [(4, 6)] * 2),
    "where": (lambda a, b, c: torch.where(c > 0, a, b), [(4, 6)] * 3),
    "weight_norm": (torch._weight_norm, [(4, 6), (4, 1)]),
    "vdot": (torch.vdot, [(6,)] * 2),
    "tensordot": (torch.tensordot, [(4, 3, 5), (3, 5, 2)]),
    "inner": (torch.inner, [(4, 6), (3, 6)]),
    "matmul": (torch.matmul, [(4, 6), (6, 5)]),
    "addmm": (torch.addmm, [(5,), (4, 6), (6, 5)]),
    "einsum": (lambda a, b: torch.einsum("ij,kj->ik", a, b), [(4, 6), (5, 6)]),
    "l1_loss": (F.l1_loss, [(4, 6)] * 2),
    "huber_loss": (F.huber_loss, [(4, 6)] * 2),
    "binary_cross_entropy_with_logits": (F.binary_cross_entropy_with_logits, [(4, 6)] * 2),
    "binary_cross_entropy": (lambda a, b: F.binary_cross_entropy(a.sigmoid(), b.sigmoid()), [(4, 6)] * 2),
    "nll_loss": (lambda x: F.nll_loss(x, CLASSES), [(4, 6)]),
    "nll_loss with weights": (lambda x, w: F.nll_loss(x, CLASSES, w.detach()), [(4, 6), (6,)]),
    "cross_entropy": (lambda x: F.cross_entropy(x, CLASSES), [(4, 6)]),
    "cross_entropy with weights": (lambda x, w: F.cross_entropy(x, CLASSES, w.detach()), [(4, 6), (6,)]),
    "cross_entropy, smoothed": (lambda x, w: F.cross_entropy(x, CLASSES, w.detach(), label_smoothing=0.1),
                                [(4, 6), (6,)]),
    "cross_entropy of probabilities": (lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), [(4, 6), (4, 6)]),
    "cosine_similarity": (F.cosine_similarity, [(4, 6)] * 2),
    "softmax": (lambda x: x.softmax(1), [(4, 6)]),
    "norm": (lambda x: x.norm(dim=1), [(4, 6)]),
    "norm, p 1": (lambda x: torch.norm(x, 1, 1), [(4, 6)]),
    "normalize": (F.normalize, [(4, 6)]),
    "logsumexp": (lambda x: x.logsumexp(1), [(4, 6)]),
    "max": (lambda x: x.max(1)[0], [(4, 6)]),
    "max of all": (torch.max, [(4, 6)]),
    "kthvalue": (lambda x: x.kthvalue(2)[0], [(4, 6)]),
    "cumsum": (lambda x: x.cumsum(1), [(4, 6)]),
    "cummax": (lambda x: x.cummax(1)[0], [(4, 6)]),
    "fmod": (torch.fmod, [(4, 6), (6,)]),
    "fmax": (torch.fmax, [(4, 6), (6,)]),
    "copysign": (torch.copysign, [(4, 6), (6,)]),
    "logaddexp": (torch.logaddexp, [(4, 6), (6,)]),
    "xlogy": (torch.xlogy, [(4, 6), (6,)]),
    "index_add": (lambda a, b: a.index_add(0, torch.arange(4), b), [(4, 6)] * 2),
    "index_add, columns": (lambda a, b: a.index_add(1, torch.arange(6), b), [(4, 6)] * 2),
    "index_add, the last of three": (lambda a, b: a.index_add(2, torch.arange(6), b), [(2, 3, 6)] * 2),
    "scatter_add": (lambda a, b: a.scatter_add(0, torch.zeros(4, 6, dtype=torch.int64), b), [(4, 6)] * 2),
    "smooth_l1_loss": (F.smooth_l1_loss, [(4, 6)] * 2),
    "kl_div": (F.kl_div, [(4, 6)] * 2),
    "pairwise_distance": (F.pairwise_distance, [(4, 6)] * 2),
    "triplet_margin_loss": (F.triplet_margin_loss, [(4, 6)] * 3),
    "margin_ranking_loss": (F.margin_ranking_loss, [(6,)] * 3),
    "hinge_embedding_loss": (F.hinge_embedding_loss, [(4, 6)] * 2),
    "cosine_embedding_loss": (F.cosine_embedding_loss, [(4, 6), (4, 6), (4,)]),
    "poisson_nll_loss": (F.poisson_nll_loss, [(4, 6)] * 2),
    "cumprod": (lambda x: x.cumprod(1), [(4, 6)]),
    "diff": (lambda x: x.diff(), [(4, 6)]),
    "cross": (lambda x, y: torch.cross(x, y, dim=1), [(4, 3)] * 2),
    "diag": (torch.diag, [(4, 6)]),
    "diag_embed": (torch.diag_embed, [(4, 6)]),
    "trace": (torch.trace, [(4, 4)]),
    "pdist": (torch.pdist, [(4, 6)]),
    **{f"scatter_reduce, {how}": (lambda x, y, how=how: x.scatter_reduce(
        0, torch.zeros(4, 6, dtype=torch.int64), y, how), [(4, 6)] * 2) for how in ("sum", "mean", "amax")},
    "prod": (torch.prod, [(4, 6)]),
    "prod of rows": (lambda x: x.prod(1), [(4, 6)]),
    "nansum": (lambda x: x.nansum(1), [(4, 6)]),
    "take": (lambda x: x.take(torch.tensor([0, 3, 3])), [(4, 6)]),
    "rot90": (torch.rot90, [(4, 6)]),
    "i0": (torch.i0, [(4, 6)]),
    "clamp": (torch.clamp, [(4, 6), (6,), (4, 1)]),
    "clamp_min": (torch.clamp_min, [(4, 6), (6,)]),
    "clamp_max": (torch.clamp_max, [(4, 6), (6,)]),
    "einsum of three": (lambda a, b, c: torch.einsum("ij,kj,kl->il", a, b, c), [(4, 6), (5, 6), (5, 3)]),
    "einsum of one": (lambda a: torch.einsum("ij->j", a), [(4, 6)]),
    "asin": (lambda x: torch.asin(x.sigmoid()), [(4, 6)]),
    "gru_cell": (torch._VF.gru_cell, [(4, 6), (4, 5), (15, 6), (15, 5)]),
}


def outcome(call, sizes, wants, written):
    torch.manual_seed(0)
    operands = [torch.randn(n, requires_grad=w) for n, w in zip(sizes, wants)]
    result = call(*operands)
    with torch.no_grad():
        (*operands, result)[written].mul_(1.5)
    if not result.requires_grad:
        return "no history"
    try:
        result.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return "an error"
    return "gradients"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_saved(name):
    function, sizes = FUNCTIONS[name]
    for pending in (False, True):
        def program(*operands):
            return function(operands[0] * 1.0 if pending else operands[0], *operands[1:])

        run = dycl.accelerate(program)
        for wants in itertools.product((False, True), repeat=len(sizes)):
            for written in range(len(sizes) + 1) if any(wants) else ():
                case = (sizes, wants, written)
                want = outcome(program, *case)
                for _ in range(2):
                    assert outcome(run, *case) == want, (pending, wants, written)


@pytest.mark.parametrize("shape", [(4, 8), (3, 4, 8), (2, 3, 4, 8)])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": torch.ones(4, 4).tril() > 0}],
                         ids=["plain", "causal", "mask"])
def test_results_of_attention_that_are_written(shape, options):
    """With three dimensions or fewer torch computes in steps, whose nodes save the weights: the result may be written,
    as `y += x` does, in the accelerated function or behind it."""
    def inside(q, k, v):
        y = F.scaled_dot_product_attention(q, k, v, **options)
        y += q
        return y.sum()

    def behind(q, k, v):
        return F.scaled_dot_product_attention(q * 1.0, k, v, **options)

    for program in (inside, behind):
        seen = []
        for run in (program, dycl.accelerate(program)):
            torch.manual_seed(0)
            operands = [torch.randn(shape, requires_grad=True) for _ in range(3)]
            y = run(*operands)
            try:
                (y if y.dim() == 0 else y.add_(1).sum()).backward()
                seen.append([x.grad for x in operands])
            except RuntimeError as error:
                assert "modified by an inplace operation" in str(error)
                seen.append("an error")
        if seen[0] == "an error":
            assert seen[1] == seen[0]
        else:
            torch.testing.assert_close(seen[1], seen[0])
