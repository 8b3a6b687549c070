"""Torch's own kernels as steps of a segment (csrc/ir/hosted.def): the rows say what torch's schemas say, each is
recorded, and results, strides, versions, types, errors and aliasing are eager's, with recorded operators around them.
tests/py/test_op_db.py runs the same functions on torch's samples."""

import itertools
import os
import re
import warnings

import pytest
import torch
import torch.nn.functional as F
from same import same
from samples import op_db
from suite import check, lot, one_thread  # noqa: F401 (a fixture)

import dycl
import started
from dycl import _core, _hosted

ROWS = {row[0]: row[1:] for row in _core.hosted()}  # name -> (schema, overload, results, parameters)

# ---- The rows and torch's schemas

KINDS = {
    "Tensor": "t", "Optional[Tensor]": "o", "List[Tensor]": "T", "List[Optional[Tensor]]": "T", "int": "i",
    "Optional[int]": "j", "float": "f", "Optional[float]": "g",
    "bool": "b", "List[bool]": "q",
    "List[int]": "l", "Optional[List[int]]": "m", "Optional[List[float]]": "r", "str": "w",
}  # fmt: skip


def schema_of(schema, overload):
    return torch._C._get_schema(f"aten::{schema}", overload)


def default_of(p):
    if p.default == "None":
        return None
    if p.kind == "b":
        return {"True": True, "False": False}[p.default]
    if p.kind == "f":
        return float(p.default)
    if p.kind == "w":
        return p.default
    value = eval(p.default)
    return [value] * p.copies if p.kind == "l" and isinstance(value, int) else value


RENAMED = {"grad_output": "grad"}  # of backward operators, from 2.13 to 2.15: they are called by position


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_torchs_schemas(name):
    schema, overload, results, text = ROWS[name]
    torchs, ours = schema_of(schema, overload), _hosted.parameters(text)
    names = [[RENAMED.get(a.name, a.name) for a in side] for side in (torchs.arguments, ours)]
    assert names[0] == names[1]
    for a, p in zip(torchs.arguments, ours):
        kind = "d" if a.name == "dtype" else KINDS[str(a.type)]
        assert p.kind == kind and p.keyword == a.kwarg_only, a.name
        if a.name == "reduction":  # its default is 1 in the schema, and 0 in what torch takes from Python
            assert not p.optional
            continue
        assert p.optional == a.has_default_value(), a.name
        assert p.copies == (a.N or 0) or not p.copies and kind in "mr", a.name
        if a.has_default_value():
            assert default_of(p) == a.default_value, a.name
    assert [str(r.type) for r in torchs.returns] == ["Tensor"] * results
    assert not any(r.alias_info for r in torchs.returns), "a view, or written in place"
    assert not torchs.is_mutable


def test_rows_with_out_have_one_that_fits():
    """What is said of `out` is only seen by the plans: a step that runs with it must answer the same."""
    for name, (schema, overload, results, text) in ROWS.items():
        out = out_of(name)
        if not out:
            continue
        assert results == 1, name
        plain, into = schema_of(schema, overload), schema_of(schema, out)
        assert [(a.name, str(a.type)) for a in into.arguments[:-1]] == [(a.name, str(a.type))
                                                                        for a in plain.arguments], \
            name
        assert into.arguments[-1].is_out, name


def out_of(name):
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "../../csrc/ir/hosted.def")) as file:
        for line in file:
            if line.startswith(f"DYCL_HOSTED({name.removeprefix('aten_')},"):
                return line.split(",")[3].strip().strip('"+')
    raise AssertionError(name)


def test_no_row_draws_numbers():
    for schema, overload, _, _ in ROWS.values():
        tags = getattr(getattr(torch.ops.aten, schema), overload or "default").tags
        assert "nondeterministic_seeded" not in [t.name for t in tags] or schema == "scaled_dot_product_attention"


# ---- Each row is recorded by some call of torch


def lazily(x):
    return x.clone() if isinstance(x, torch.Tensor) and x.layout == torch.strided else [lazily(y) for y in x] \
        if type(x) is list else tuple(map(lazily, x)) if type(x) is tuple else x


def recorded_rows(function, arguments):
    """The rows among the operators of three runs. Errors are other tests' business."""

    # the others stay plain: alike operators in a row would be taken for a loop, whose pieces explain does not show
    def program(first, *rest):
        result = function(lazily(first), *rest)
        tensors = [t for t in (result if isinstance(result, (list, tuple)) else [result])
                   if isinstance(t, torch.Tensor)]
        return result, [t.reshape(-1)[:1].logical_not() for t in tensors]

    accelerated = dycl.accelerate(program)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            try:
                accelerated(*arguments)
            except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
                return set()
    return {word for word in dycl.explain(accelerated).split() if word in ROWS}


def x2(*shape):
    return torch.randn(*(shape or (4, 6)))


I4 = torch.tensor([0, 2, 1])
EXTRA = {
    "aten_log_softmax": (lambda x: torch.log_softmax(x, 1), torch.randn(3, 5).bfloat16()),
    "aten_avg_pool1d": (F.avg_pool1d, x2(2, 3, 8).double(), 2),
    "aten_avg_pool2d": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), x2(1, 2, 6, 6)),
    "aten_adaptive_avg_pool1d": (F.adaptive_avg_pool1d, x2(2, 3, 8).double(), 3),
    "aten_adaptive_avg_pool2d": (F.adaptive_avg_pool2d, x2(1, 3, 8, 8).double(), 3),
    "aten_max_pool1d": (F.max_pool1d, x2(2, 3, 8).double(), 2),
    "aten_max_pool2d": (F.max_pool2d, x2(2, 3, 8, 8).double(), 2),
    "aten_conv1d": (F.conv1d, x2(2, 3, 8).double(), x2(4, 3, 3).double()),
    "aten_conv2d": (F.conv2d, x2(2, 3, 8, 8).double(), x2(4, 3, 3, 3).double()),
    "aten_conv_transpose1d": (F.conv_transpose1d, x2(2, 3, 8).double(), x2(3, 4, 3).double()),
    "aten_conv_transpose2d": (F.conv_transpose2d, x2(2, 3, 8, 8).double(), x2(3, 4, 3, 3).double()),
    "aten_attention": (F.scaled_dot_product_attention, x2(1, 2, 4, 8).double(), x2(1, 2, 4, 8).double(),
                       x2(1, 2, 4, 8).double()),
    "aten_tensordot": (torch.tensordot, torch.arange(6).view(2, 3), torch.arange(12).view(3, 4), 1),
    "aten_batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), x2(4, 5, 3).mT),
    "aten_group_norm": (lambda x: F.group_norm(x, 2), x2(2, 4, 6).double()),
    "aten_slogdet": (torch.slogdet, x2(2, 3, 3)),
    "aten_im2col": (lambda x: F.unfold(x, 2), x2(1, 2, 5, 5)),
    "aten_col2im": (lambda x: F.fold(x, 5, 2), x2(1, 8, 16)),
    "aten_grid_sampler": (lambda x, g: F.grid_sample(x, g, align_corners=False), x2(1, 2, 5, 5),
                          torch.rand(1, 3, 3, 2)),
    "aten_reflection_pad1d": (lambda x: F.pad(x, (1, 2), mode="reflect"), x2(2, 3, 8)),
    "aten_reflection_pad2d": (lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect"), x2(2, 3, 8, 8)),
    "aten_reflection_pad3d": (lambda x: F.pad(x, (1, 2, 0, 1, 1, 1), mode="reflect"), x2(2, 3, 4, 4, 4)),
    "aten_replication_pad1d": (lambda x: F.pad(x, (1, 2), mode="replicate"), x2(3, 8)),
    "aten_replication_pad2d": (lambda x: F.pad(x, (1, 2, 0, 1), mode="replicate"), x2(3, 8, 8)),
    "aten_replication_pad3d": (lambda x: F.pad(x, (1, 2, 0, 1, 1, 1), mode="replicate"), x2(2, 3, 4, 4, 4)),
    "aten_det": (torch.det, x2(2, 3, 3)),
    "aten_linalg_matrix_exp": (torch.linalg.matrix_exp, x2(2, 3, 3)),
    "aten_instance_norm": (lambda x: F.instance_norm(x, torch.zeros(3), torch.ones(3), use_input_stats=False),
                           x2(2, 3, 7)),
    "aten_weight_norm": (torch._weight_norm, x2(4, 6), x2(4, 1), 0),
    "aten_index": (lambda x, i: x[i, :, i], x2(4, 3, 6), I4),
    "aten_index_put": (lambda x, i: x.index_put((i,), x[i] * 2, accumulate=True), x2(4, 3), I4),
    "aten_scatter_src": (lambda x, i: x.scatter(0, i[None], x * 2), x2(4, 6), I4),
    "aten_take": (torch.take, x2(4, 6), I4),
    "aten_cat": (lambda x: torch.cat([x, x]), x2(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d)),
    "aten_stack": (lambda x: torch.stack([x, x]), x2(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d)),
    "aten_flip": (lambda x: x.flip(2), x2(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d)),
    "aten_roll": (lambda x: x.roll(1, 2), x2(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d)),
    "aten_cumsum": (lambda x: x.cumsum(0, dtype=torch.int32), torch.ones(3, 4, dtype=torch.int32)),
    "aten_pad_circular": (lambda x: F.pad(x, (1, 2), mode="circular"), x2(2, 3, 8)),
    "aten_affine_grid_generator": (lambda x: F.affine_grid(x, [2, 3, 4, 5], align_corners=False), x2(2, 2, 3)),
    "aten_upsample_linear1d": (lambda x: F.interpolate(x, scale_factor=2, mode="linear"), x2(2, 3, 8).double()),
    "aten_upsample_trilinear3d": (lambda x: F.interpolate(x, 6, mode="trilinear"), x2(2, 3, 4, 4, 4)),
    "aten_upsample_nearest1d": (lambda x: F.interpolate(x, 16), x2(2, 3, 8).double()),
    "aten_upsample_nearest2d": (lambda x: F.interpolate(x, 16), x2(2, 3, 8, 8).double()),
    "aten_upsample_nearest3d": (lambda x: F.interpolate(x, scale_factor=(2, 1.5, 1)), x2(2, 3, 4, 4, 4)),
    "aten_upsample_nearest_exact1d": (lambda x: F.interpolate(x, 16, mode="nearest-exact"), x2(2, 3, 8).double()),
    "aten_upsample_nearest_exact2d": (lambda x: F.interpolate(x, 16, mode="nearest-exact"), x2(2, 3, 8, 8).double()),
    "aten_upsample_nearest_exact3d": (lambda x: F.interpolate(x, 6, mode="nearest-exact"), x2(2, 3, 4, 4, 4)),
    "aten_upsample_bilinear2d": (lambda x: F.interpolate(x, 16, mode="bilinear"), x2(2, 3, 8, 8).double()),
    "aten_upsample_bicubic2d": (lambda x: F.interpolate(x, 16, mode="bicubic"), x2(2, 3, 8, 8).double()),
    "aten_upsample_bilinear2d_aa": (lambda x: F.interpolate(x, 4, mode="bilinear", antialias=True), x2(2, 3, 8, 8)),
    "aten_upsample_bicubic2d_aa": (lambda x: F.interpolate(x, 4, mode="bicubic", antialias=True), x2(2, 3, 8, 8)),
    "aten_mse_loss": (torch._C._nn.mse_loss, x2(), x2(), 1),
    "aten_l1_loss": (torch._C._nn.l1_loss, x2(), x2(), 2),
    "aten_cross_entropy_loss": (F.cross_entropy, x2(), I4.repeat(2)[:4]),
    "aten_nll_loss_nd": (F.nll_loss, x2(), I4.repeat(2)[:4]),
    "aten_trapezoid": (torch.trapezoid, x2(), x2()),
    "aten_bilinear": (F.bilinear, x2(4, 3), x2(4, 5), x2(2, 3, 5)),
    "aten_pdist": (torch.pdist, x2()),
    "aten_channel_shuffle": (torch.channel_shuffle, x2(2, 4, 3, 3), 2),
    "aten_max_pool1d_with_indices": (lambda x: F.max_pool1d(x, 2, return_indices=True), x2(2, 3, 8)),
    "aten_max_pool2d_with_indices": (lambda x: F.max_pool2d(x, 2, return_indices=True), x2(2, 3, 8, 8)),
    "aten_max_pool3d_with_indices": (lambda x: F.max_pool3d(x, 2, return_indices=True), x2(2, 3, 4, 4, 4)),
    "aten_adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 2, return_indices=True), x2(2, 3, 8)),
    "aten_adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, 2), x2(2, 3, 8, 8)),
    "aten_adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, 2), x2(2, 3, 4, 4, 4)),
}


def test_every_row_is_recorded():
    seen = set()
    for function, *arguments in EXTRA.values():
        seen |= recorded_rows(function, arguments)
    names = {row[0] for row in ROWS.values()} | {name.removeprefix("aten_") for name in ROWS}
    for op in op_db:
        if torch.float32 not in op.supported_dtypes("cpu") and torch.int64 not in op.supported_dtypes("cpu"):
            continue
        if not any(part in names for part in (op.name, op.aten_name, op.name.split(".")[-1],
                                              op.name.replace(".", "_"))):
            continue
        dtype = torch.float32 if torch.float32 in op.supported_dtypes("cpu") else torch.int64
        for s in itertools.islice(op.sample_inputs("cpu", dtype), 6):
            seen |= recorded_rows(lambda *a: op.op(*a, **s.kwargs), (s.input, *s.args))
            if seen == set(ROWS):
                break
    # test_gradients, test_train_norm, test_grouped_gradients
    training = {name for name in ROWS if re.search("_(backward|functional|grouped_mm)$", name)}
    # with a history only: test_recorded_gradients
    training |= {"aten_logsumexp", "aten_max", "aten_min", "aten_index_add", "aten_weight_norm_interface"}
    missing = set(ROWS) - training - seen
    assert not missing, " ".join(sorted(missing))


# ---- Programs


def around(function):
    """Recorded operators in front of it, behind it and beside it."""

    def program(*arguments):
        given = lazily(arguments)
        front = [t * 1 + 0 if isinstance(t, torch.Tensor) and t.is_floating_point() else t for t in given]
        result = function(*front)
        tensors = [t for t in (result if isinstance(result, (list, tuple)) else [result])
                   if isinstance(t, torch.Tensor)]
        behind = [t.reshape(-1).logical_not() if t.dtype == torch.bool else t.unsqueeze(0) + 1 for t in tensors]
        return result, behind, front

    return program


FORMATS = {
    "contiguous": lambda t: t,
    "channels last": lambda t: t.contiguous(memory_format=torch.channels_last_3d if t.ndim == 5
                                            else torch.channels_last) if t.ndim in (4, 5) else t,
    "transposed": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.ndim > 1 else t,
    "sliced": lambda t: torch.stack([t, t], -1)[..., 1],
    "expanded": lambda t: t[:1].expand(t.shape),
    "size 1": lambda t: t[:1],
}


@pytest.mark.parametrize("format", FORMATS)
def test_extra_calls_in_every_format(format):
    for name, (function, *arguments) in EXTRA.items():
        arguments = tuple(FORMATS[format](a) if isinstance(a, torch.Tensor) and a.is_floating_point() and a.ndim > 1
                          else a for a in arguments)
        check("hosted", around(function), arguments, f"{name}, {format}", runs=4)


INDICES = {
    "two apart": lambda x, i: x[i, :, i],
    "int32": lambda x, i: x[i.int(), :, i.int()],
    "list": lambda x, i: x[[0, 2, 1]],
    "list behind a slice": lambda x, i: x[:, [1, 0], 1:],
    "nested list": lambda x, i: x[[[0, 1], [2, 0]]],
    "tuple of lists": lambda x, i: x[[0, 1], [1, 2]],
    "integer and tensor": lambda x, i: x[1, :, i],
    "tensor of rank 0 and tensor": lambda x, i: x[i[1], :, i],
    "None and tensors": lambda x, i: x[None, i, ..., i, None],
    "broadcast": lambda x, i: x[i[:, None], i, i],
    "from the end": lambda x, i: x[-1 - i, :, i - 1],
    "of a transposed one": lambda x, i: x.transpose(0, 2)[:, i],
    "computed": lambda x, i: x[(x.sum((1, 2)) > 0).long()[:3], :, i],
    "mask": lambda x, i: x[x > 0],
    "mask of rows": lambda x, i: x[:, x.sum((0, 2)) > 0],
    "mask and integers": lambda x, i: x[x[:, 0, 0] > 0, 1],
    "bool": lambda x, i: x[True],
    "empty": lambda x, i: x[i[:0]],
    "out of range": lambda x, i: x[i + 9, :, i],
    "out of range, list": lambda x, i: x[:, [0, 7]],
    "too many": lambda x, i: x[i, i, i, i],
    "no integers": lambda x, i: x[i * 1.0],
}


@pytest.mark.parametrize("name", INDICES)
def test_indices(name):
    check("index", lambda x, i: (INDICES[name](x * 2, i + 0), INDICES[name](x, i), x + 1),
          (torch.randn(4, 3, 5), torch.tensor([0, 2, 1])), name, runs=4)


def setting(key, value):
    def program(x, i):
        t, s = x * 2, (x * 2).transpose(0, 1)
        before = t + 1
        for y in (t, s):
            y[key(y, i)] = value(y, i) if callable(value) else value
        t[key(t, i)] = value(t, i) if callable(value) else value
        return t, s, before, t + 1, t._version, s._version

    return program


SETTINGS = {
    "two indices": setting(lambda x, i: (i, i), 7.0),
    "behind a slice": setting(lambda x, i: (slice(None), i), lambda x, i: x[:, i] * 0 + 3),
    "list": setting(lambda x, i: [0, 2], -1),
    "strided view": setting(lambda x, i: (slice(0, 3, 2), slice(None), i), 5),
    "integer and tensor": setting(lambda x, i: (1, i), lambda x, i: x[1, i] * 10),
    "broadcast value": setting(lambda x, i: (i, slice(None), i), lambda x, i: torch.tensor([1.0, 2.0, 3.0])),
    "number of rank 0": setting(lambda x, i: (i, i), lambda x, i: torch.tensor(4.0)),
    "another dtype": setting(lambda x, i: (i, i), lambda x, i: torch.tensor(4)),
    "wrong shape": setting(lambda x, i: (i, i), lambda x, i: torch.zeros(2, 2)),
    "out of range": setting(lambda x, i: (i + 5, i), 0),
    "leading ones": setting(lambda x, i: (slice(None), i), lambda x, i: x[:1, i]),
    "mask and number": setting(lambda x, i: x > 0, 9),
    "mask and values": setting(lambda x, i: x > 0, lambda x, i: x[x > 0] * 2),
    "float into it": setting(lambda x, i: (i, i), float("nan")),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_written_by_indices(name):
    check("index_put", SETTINGS[name], (torch.randn(4, 4, 5), torch.tensor([0, 2, 1])), name, runs=4)


def messages(x, edges, weights):
    """What graph networks do: gather by one end of an edge, scatter to the other."""
    source, target = edges
    out = x.new_zeros(x.shape[0], 4)
    out.index_add_(0, target, (x @ weights)[source])
    degree = torch.zeros(x.shape[0]).scatter_add_(0, target, torch.ones(target.shape[0]))
    most = x.new_full((x.shape[0], 4), -1.0).scatter_reduce_(0, target[:, None].expand(-1, 4), (x @ weights)[source],
                                                             "amax", include_self=False)
    share = torch.zeros_like(out).scatter_reduce(0, target[:, None].expand(-1, 4), out[source].exp(), "sum")
    marks = torch.zeros(x.shape[0], 5).scatter_(1, edges[:, : x.shape[0]].t() % 5, 1)
    return out / degree.clamp(min=1)[:, None], most.relu(), share.log1p(), marks, degree.index_fill(0, target[:2], -1)


def volumes(x, weight):
    """A network of three dimensions."""
    h = F.leaky_relu(F.instance_norm(F.conv3d(x, weight, padding=1)))
    h = F.max_pool3d(h, 2)
    up = F.interpolate(h, scale_factor=2, mode="trilinear", align_corners=False)
    h = torch.cat([up, x[:, :2]], 1)
    pooled = F.adaptive_avg_pool3d(h, 1).flatten(1)
    padded = F.pad(h, (1, 1, 1, 1, 1, 1), mode="replicate")
    return (h, pooled.softmax(-1), F.avg_pool3d(padded, 2), F.conv3d(h[:, :3], weight, padding="same"),
            F.group_norm(h, 1))


def geometry(x):
    """Angles, cross products, sampling: what vision libraries of geometry do."""
    angle = torch.deg2rad(x[:, 0] * 90)
    matrix = torch.stack([torch.cosh(angle).rsqrt(), torch.atan(angle), x[:, 1], -torch.asin(angle.tanh()),
                          torch.acos(angle.tanh()), x[:, 2]], -1).reshape(-1, 2, 3)
    grid = F.affine_grid(matrix, [x.shape[0], 3, 6, 6], align_corners=True)
    image = torch.linspace(0, 1, x.shape[0] * 3 * 36).reshape(x.shape[0], 3, 6, 6)
    normal = torch.linalg.cross(x[:, :3], x[:, 1:4])
    return (F.grid_sample(image, grid, padding_mode="reflection", align_corners=True),
            normal / normal.norm(dim=-1, keepdim=True), torch.cdist(x, x), torch.det(x[:4, :4]))


PROGRAMS = {
    "messages": (messages, lambda: (torch.randn(9, 6), torch.randint(0, 9, (2, 30)), torch.randn(6, 4))),
    "volumes": (volumes, lambda: (torch.randn(2, 3, 6, 6, 6), torch.randn(4, 3, 3, 3, 3) * 0.2)),
    "geometry": (geometry, lambda: (torch.rand(5, 4),)),
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, mode):
    function, make = PROGRAMS[name]
    with mode():
        stats = check("matmul", function, make(), name, runs=5)
    assert stats["recorded"] > 2 * stats["torch"], stats


def test_the_segment_goes_on():
    """From the second call on a chain of such operators is one segment, and nothing is left to torch."""

    def program(x):
        h = torch.atan(x * 2).cumprod(-1)
        h, at = (h + 1).cummax(0)
        h = F.pad(h[None] * 2, (2, 1), mode="reflect")[0]
        return h.scatter_add(0, torch.arange(3).unsqueeze(1), h[:, :2]).sinc() * 3, at + 1

    accelerated = dycl.accelerate(program)
    x = torch.randn(5, 8)
    with torch.no_grad():
        accelerated(x)
        first = dycl.stats(accelerated)
        for _ in range(9):
            for got, want in zip(accelerated(x), program(x)):
                torch.testing.assert_close(got, want)
    stats = dycl.stats(accelerated)
    assert first["torch"] == stats["torch"] > 0 and stats["bails"] == {"first": first["torch"]}, stats
    assert stats["segments"] == first["segments"] + 9, stats


def test_two_results_are_one_call():
    accelerated = dycl.accelerate(lambda x: (x + 1).cummax(1))
    with torch.no_grad():
        for _ in range(4):
            values, indices = accelerated(torch.randn(3, 5))
    text = dycl.explain(accelerated)
    assert text.count("aten_cummax") == 1 and type(accelerated(torch.randn(3, 5))) is torch.return_types.cummax


def test_one_result_of_two_can_die():
    def program(x):
        (x + 1).cummax(1)
        return (x + 2).cummax(1).indices * 2, torch.median(x * 1, 1).values + 1

    same(program, lambda: (torch.randn(3, 5),), calls=5)


def test_forms_are_of_their_own_mode():
    """A form that was learned in inference mode, where versions are not counted, says nothing about other calls."""
    x = torch.randn(3, 4)

    def program(x):
        y = (x + 1).logit(0.1)
        z = x * 1
        z.atan_()
        return y, z

    accelerated = dycl.accelerate(program)
    for mode in (torch.inference_mode, torch.no_grad, torch.inference_mode, torch.no_grad):
        with mode():
            for _ in range(3):
                want, got = program(x), accelerated(x)
                for a, b in zip(want, got):
                    assert a.is_inference() == b.is_inference() and (a.is_inference() or a._version == b._version)
                    torch.testing.assert_close(a, b)


def test_in_place_on_memory_of_others():
    def program(x):
        y = x * 2
        view = y[1:]
        y.atan_()
        view.cumprod_(1)
        x.erfinv_()
        z = x.new_zeros(4, 3)
        rows = z[1:3]
        z.scatter_add_(0, torch.zeros(1, 3, dtype=torch.long), x[:1])
        rows.sinc_()
        return y, view, z, rows, z + 1

    same(program, lambda: (torch.rand(3, 3) * 0.9,), calls=4)


def test_errors_are_torchs():
    for function in (
        lambda x: torch.cumprod(x, 5),
        lambda x: F.pad(x[None], (9, 9), mode="reflect"),
        lambda x: x.scatter_add(0, torch.full((1, 1), 99), x),
        lambda x: x.index_add(0, torch.tensor([0, 1]), x),
        lambda x: torch.gcd(x, x),
        lambda x: F.conv3d(x, x),
        lambda x: torch.hypot(x, 2.0),
        lambda x: x.scatter_(0, torch.zeros(1, 1, dtype=torch.long), "x"),
        lambda x: F.cross_entropy(x, torch.tensor([0, 9, 0])),
        lambda x: torch.block_diag(x, None),
    ):
        check("error", lambda x: (x + 1, function(x * 2)), (torch.randn(3, 4),), "error", runs=3)


def test_what_aliases_an_operand_is_torchs():
    """positive(), real parts, contiguous copies that are none: never a result of its own."""
    same(lambda x: (lambda y: (torch.diag_embed(y), y.rot90(0), y.rot90(4),
                               torch.select_scatter(y, y[0], 0, 1)))(x * 2), lambda: (torch.randn(3, 3),), calls=4)


def test_a_bias_of_another_dtype():
    """torch looks at its dtype where the padding is a number, not where it is a word."""
    weight, bias = torch.randn(3, 2, 1, 3, 1), torch.tensor([True, False, True])
    for padding in ("valid", "same", 0):
        same(lambda x: F.conv3d(x * 2, weight, bias, padding=padding), lambda: (torch.randn(1, 2, 3, 4, 2),),
             recorded=None, like="matmul")


def test_settings_of_torch():
    """Where oneDNN is switched off, convolutions lie otherwise."""
    weight, x = torch.randn(4, 3, 3, 3, 3), torch.randn(1, 3, 5, 5, 5).contiguous(memory_format=torch.channels_last_3d)

    def program(x):
        return F.conv3d(x * 1, weight) + 1

    accelerated = dycl.accelerate(program)
    with torch.no_grad():
        for enabled in (True, False, True, False):
            with torch.backends.mkldnn.flags(enabled=enabled):
                for _ in range(3):
                    want, got = program(x), accelerated(x)
                    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
                    assert got.stride() == want.stride()


def test_memory_stays():
    """300,000 calls would show a few bytes each: a tenth of that, of every kind of argument."""
    x, index = torch.randn(4, 6), torch.randint(0, 4, (4, 6))
    rows = torch.tensor([0, 1, 1])

    def program(x):
        y = x * 1
        y.cumprod(1, dtype=torch.float64)
        F.pad(y[None], (1, 1), mode="reflect")
        F.interpolate(y[None], scale_factor=2.0, mode="linear")
        torch.block_diag(y, y)
        return (y.scatter_reduce(0, index, x, "amax"), y[rows, :, None][:, [0, 1]], torch.nan_to_num(y, nan=1.0),
                y.cummax(0), y.cumprod(1), torch.nansum(y, 1, dtype=torch.float64))

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * 4

    accelerated = dycl.accelerate(program)
    with torch.no_grad():
        for _ in range(3000):
            accelerated(x)
        before = resident()
        for _ in range(10000):
            accelerated(x)
    assert resident() - before < 600, f"{resident() - before} KiB in 10000 calls"


def test_many_forms():
    """More kinds of calls than are kept: they are learned again."""
    accelerated = dycl.accelerate(lambda x: torch.atan(x + 1))
    with torch.no_grad():
        for n in itertools.chain(range(1, 9000), range(1, 50)):
            got = accelerated(torch.ones(n % 3000 + 1, n // 3000 + 1))
            if lot(n) % 97 == 0:
                torch.testing.assert_close(got, torch.full((n % 3000 + 1, n // 3000 + 1), 2.0).atan())


def test_ahead_of_the_recording():
    """The runner's thread calls torch's kernels too."""
    code = """
import torch, dycl, torch.nn.functional as F
torch.set_num_threads(1)
w = torch.randn(256, 256) / 16
def program(x):
    for _ in range(6):
        x = torch.atan((x @ w).logcumsumexp(-1)) + F.pad(x[None], (3, 3), mode="replicate")[0, :, 3:-3]
    return x
f, x = dycl.accelerate(program), torch.randn(64, 256)
with torch.no_grad():
    want = program(x)
    for _ in range(60):
        torch.testing.assert_close(f(x), want, rtol=1e-4, atol=1e-5)
print(dycl.stats(f)["ahead"])
"""
    done = started.run(["-c", code], env={**os.environ, "DYCL_AHEAD": "1", "DYCL_CHOOSE": "0"}, timeout=180)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0 or (os.cpu_count() or 1) < 2


def test_values_only():
    """Results whose size depends on values: the segment ends, nothing is left to torch, and tensors stay what they
    are."""

    def program(x):
        y = x.round() * 2
        kept = y + 1
        parts = [
            y.nonzero(), torch.nonzero(y > 0, as_tuple=True), torch.argwhere(y), y.masked_select(y > 0),
            torch.bincount(y.abs().long().flatten()),
            torch.unique(y, return_counts=True), torch.unique(y, dim=0), torch.unique_consecutive(y.flatten()),
            torch.where(y > 0), y[y > 0],
            y.flatten().repeat_interleave(y.flatten().abs().long()), torch.masked_scatter(y, y > 0, kept.flatten()),
            torch.equal(y, kept), torch.allclose(y, y), 2.0 in y, y[0, 0] in y, 77 in y, torch._is_all_true(y == y),
        ]  # fmt: skip
        return parts, kept * y

    stats = same(program, lambda: (torch.randn(3, 4),), calls=4)
    assert stats["torch"] == 0, stats["bails"]


def test_as_strided():
    def program(x):
        y = x * 2
        whole = y.as_strided((3, 2), (2, 1))
        windows = y.as_strided((2, 3, 2), (4, 2, 1))
        part = y[1:].as_strided((2, 2), (1, 2))
        placed = y[1:].as_strided((2, 2), (1, 2), 3)
        argument = x.as_strided((2, 2), (4, 1))
        y.add_(1)
        return whole, windows, part, placed, argument + 1, y

    same(program, lambda: (torch.randn(4, 4),), calls=3)
    check("error", lambda x: (x * 2).as_strided((9, 9), (9, 1)), (torch.randn(3, 3),), "beyond the storage")
    check("offset", lambda x: x[1:].as_strided((2, 2), (1, 2)) + 1, (torch.randn(4, 4),), "an argument with an offset")




def test_the_same_call_twice():
    """Its second results are their own, also where no pass makes one call of the two (a segment's first run)."""
    programs = [lambda x: (*F.adaptive_max_pool1d(x, 2, return_indices=True),
                           *F.adaptive_max_pool1d(x, 2, return_indices=True)),
                lambda x: (*torch.linalg.slogdet(x), *torch.linalg.slogdet(x))]
    for program in programs:
        accelerated = dycl.accelerate(program)
        with torch.no_grad():
            for _ in range(3):
                x = torch.randn(3, 4, 4)
                assert all(map(torch.equal, program(x), accelerated(x)))
