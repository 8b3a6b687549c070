"""Views, copies, joining and padding."""

import pytest
import torch
from binding_check import check, check_error, tensor

F = torch.nn.functional


INPUTS = {
    "contiguous": tensor(2, 3, 4),
    "transposed": tensor(4, 3, 2).permute(2, 1, 0),
    "sliced": tensor(4, 6, 4)[::2, 1:4],
    "ones": tensor(2, 1, 12).expand(2, 3, 12)[:, :, ::3],
    "int": tensor(2, 3, 4, dtype=torch.int64),
    "bool": tensor(2, 3, 4, dtype=torch.int64) % 2 == 0,
    "double": tensor(2, 3, 4, dtype=torch.float64),
}

VIEWS = {
    "view_as": lambda x: x.view_as(x),
    "reshape": lambda x: (x.reshape(6, 4), x.reshape((2, -1)), torch.reshape(x, (24,)), x.reshape(2, 3, 4),
                          x.reshape(shape=(4, 6))),
    "reshape_as": lambda x: x.reshape_as(x.transpose(0, 1)),
    "flatten": lambda x: (x.flatten(), x.flatten(1), x.flatten(0, 1), x.flatten(1, 1),
                          torch.flatten(x, start_dim=1, end_dim=-1)),
    "ravel": lambda x: x.ravel(),
    "unflatten": lambda x: (x.unflatten(2, (2, 2)), x.unflatten(-1, (-1, 2)), torch.unflatten(x, 0, (1, 2))),
    "squeeze": lambda x: (x.squeeze(), x[:, :1].squeeze(1), x[:1, :1].squeeze((0, 1)), x.squeeze(0),
                          x[:, :, :1].squeeze(dim=-1)),
    "unsqueeze": lambda x: (x.unsqueeze(0), x.unsqueeze(-1), torch.unsqueeze(x, 1), x.unsqueeze(dim=2)),
    "transpose": lambda x: (x.transpose(0, 1), x.transpose(-1, -2), torch.swapaxes(x, 0, 2), x.swapdims(1, 1), x.mT),
    "t": lambda x: (x[0].t(), x[0, 0].t(), x[0].T),
    "permute": lambda x: (x.permute(2, 0, 1), x.permute((1, 0, 2)), torch.permute(x, (-1, 0, 1)),
                          x.permute(dims=(0, 1, 2))),
    "movedim": lambda x: (x.movedim(0, 2), torch.moveaxis(x, (0, 1), (1, 2)), x.movedim((-1, 0), (0, 1))),
    "expand": lambda x: (x[:, :1].expand(2, 5, 4), x.expand(3, -1, -1, -1), x[0, :1].expand_as(x[0]),
                         torch.broadcast_to(x, (2, 2, 3, 4)), x.expand((2, 3, 4))),
    "narrow": lambda x: (x.narrow(0, 0, 1), x.narrow(2, -3, 2), torch.narrow(x, 1, 3, 0)),
    "select": lambda x: (x.select(0, 1), torch.select(x, -1, -2)),
    "diagonal": lambda x: (x.diagonal(), x.diagonal(1, 1, 2), torch.diagonal(x, -1, 0, 2), x.diagonal(offset=7)),
    "unfold": lambda x: (x.unfold(2, 2, 1), x.unfold(1, 3, 2)),
    "chunk": lambda x: (x.chunk(2), torch.chunk(x, 3, -1), x.chunk(5, dim=2)),
    "split": lambda x: (x.split(2, dim=1), torch.split(x, [1, 3], dim=2), x.split((1, 1)), torch.split(x, 5),
                        x.split_with_sizes([2, 2], 2)),
    "tensor_split": lambda x: (x.tensor_split(3, dim=2), torch.tensor_split(x, (1, 2), 1), x.tensor_split([1], dim=-1)),
    "adjoint": lambda x: (x.adjoint(), torch.adjoint(x)),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x[0, 0], x[:, :1, :1], x[0, 0, 0]),
    "unbind": lambda x: (x.unbind(), torch.unbind(x, -1), x.unbind(dim=1)),
    "iterate": lambda x: [row for row in x],
    "unpack": lambda x: (lambda a, b: (b, a))(*x),
    "detach": lambda x: x.detach(),
    "contiguous": lambda x: x.contiguous(),
    "clone": lambda x: (x.clone(), torch.clone(x, memory_format=torch.contiguous_format),
                        x.clone(memory_format=torch.preserve_format)),
    "repeat": lambda x: (x.repeat(1, 2, 1), x.repeat(2, 1, 1, 3), x.repeat((1, 1, 1)), x[:, :1].repeat(1, 3, 1),
                         x.repeat(0, 1, 1), x.tile(2), torch.tile(x, (2, 1, 1, 2))),
    "repeat_interleave": lambda x: (x.repeat_interleave(2), x.repeat_interleave(3, dim=1),
                                    torch.repeat_interleave(x, 1, dim=-1), x.repeat_interleave(0, 0)),
    "roll": lambda x: (x.roll(1), x.roll(-1, 0), torch.roll(x, (1, 2), (1, 2)), x.roll(7, 1), x.roll(0, 2)),
    "cat": lambda x: (torch.cat([x, x]), torch.cat((x, x[:, :2], x), dim=1), torch.concat([x, x], -1), torch.cat([x]),
                      torch.cat([x, x.new_zeros(0)], 1)),
    "stack": lambda x: (torch.stack([x, x]), torch.stack((x, x, x), dim=-1), torch.stack([x[0, 0, 0], x[0, 0, 1]]),
                        torch.stack([x, x], 1)),
    "hstack": lambda x: (torch.hstack([x, x]), torch.hstack((x[0, 0], x[0, 1])),
                         torch.hstack([x[0, 0, 0], x[0, 0, 1]])),
    "vstack": lambda x: (torch.vstack([x, x]), torch.vstack((x[0, 0], x[0, 1]))),
    "dstack": lambda x: (torch.dstack([x, x]), torch.dstack((x[0], x[1])), torch.dstack((x[0, 0], x[0, 1]))),
    "pad": lambda x: (F.pad(x, (1, 2)), F.pad(x, [0, 1, 2, 0], value=1), F.pad(x, (-1, 1)),
                      F.pad(x, (-1, -1), "constant", 0), F.pad(x, (0, 0)), F.pad(x, (1, 1), value=1.0)),
    "meshgrid": lambda x: (torch.meshgrid(x[0, 0], x[0, :, 0], indexing="ij"),
                           torch.meshgrid(x[0, 0], x[0, :, 0], indexing="xy"),
                           torch.meshgrid([x[0, 0]], indexing="ij")),
}


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", VIEWS)
def test_on_feeds(name, kind):
    check(VIEWS[name], INPUTS[kind])


@pytest.mark.parametrize("kind", ["contiguous", "transposed", "sliced", "int"])
@pytest.mark.parametrize("name", VIEWS)
def test_on_results(name, kind):
    check(lambda x: (lambda y: (y, VIEWS[name](y)))(x + x), INPUTS[kind])


@pytest.mark.parametrize("name", ["flip", "tril", "triu"])
def test_of_contiguous(name):
    functions = {
        "flip": lambda x: (x.fliplr(), torch.flipud(x), x.flip(0), x.flip((1, 2)), torch.flip(x, (-1,)), x.flip(0, 2)),
        "tril": lambda x: (x.tril(), torch.tril(x, -1), x.tril(diagonal=1)),
        "triu": lambda x: (x.triu(), torch.triu(x, -1), x.triu(2), torch.ones(4, 4).triu_(1)),
    }
    for kind in ("contiguous", "int", "bool", "double"):
        check(functions[name], INPUTS[kind])


def test_view():
    check(lambda x: (x.view(6, 4), x.view(-1), x.view((2, 12)), x.view(size=(4, 6)), x.view(2, 3, 2, 2),
                     x.view(1, 24, 1)), tensor(2, 3, 4))
    check(lambda x: x.view(3, 2, 2, 2), tensor(3, 8)[:, :4].unsqueeze(1).expand(3, 2, 4))
    check(lambda x: x.view(torch.int32), tensor(2, 3), left=1)


def test_conjugate_transposes_of_real_numbers():
    for x in (tensor(3, 4), tensor(5, 4, 3).permute(2, 1, 0)[0], tensor(3, 4, dtype=torch.int64) > 5):
        check(lambda x: (x.H, x.mH, x.H.H, (x == x).mH, x.T.H, x[None].mH), x)
    check_error(lambda x: (x + 1).H, tensor(2, 3, 4))
    check_error(lambda x: (x + 1).mH, tensor(5))
    check_error(lambda x: x.mH, tensor(5))


def test_names_of_numpy():
    check(lambda x: (x.squeeze(axis=1), x.unsqueeze(axis=-1), x.select(axis=0, index=1), torch.cat((x, x), axis=1),
                     torch.stack([x, x + 1], axis=2), torch.unsqueeze(x=x, axis=0),
                     (x + 1).narrow(axis=0, start=1, length=1), torch.unbind(x + 1, axis=1),
                     torch.squeeze(a=x + 1)), tensor(3, 1, 4))
    check_error(lambda x: (x + 1).unsqueeze(0, axis=1), tensor(3, 4))
    check_error(lambda x: (x + 1).unsqueeze(dim=0, axis=1), tensor(3, 4))
    check_error(lambda x: (x + 1).split(2, axis=1), tensor(3, 4))  # a Python function
    check_error(lambda x: torch.split(x + 1, 2, axis=1), tensor(3, 4))


def test_zero_dimensional():
    check(lambda x: (x.expand_as(x.view(1, 1)), x.expand(2, 1), x.view(1), x.reshape(()), x.flatten(), x.ravel(),
                     x.squeeze(), x.squeeze(0), x.unsqueeze(0), x.t(), x.expand(3), x.clone(), x.contiguous(),
                     x.repeat(2), x.permute(()), torch.stack([x, x]), x.detach(), x.transpose(0, 0)), torch.tensor(3.0))


def test_empty():
    for x in (torch.zeros(0), torch.zeros(2, 0, 3), torch.zeros(0, 4)):
        check(lambda x: (x.flatten(), x.clone(), x.contiguous(), x.transpose(0, -1), x.unsqueeze(1), x.reshape(0, 5),
                         x.repeat(*[2] * x.dim()), torch.cat([x, x]),
                         x.squeeze(), x.unbind(-1), F.pad(x, (1, 1))), x)


def test_channels_last():
    x = tensor(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check(lambda x: (x.contiguous(), x.contiguous(memory_format=torch.channels_last), x.clone(), torch.cat([x, x], 1),
                     torch.cat([x, x], -1), F.pad(x, (1, 2, 0, 1)),
                     x.is_contiguous(memory_format=torch.channels_last), x.flatten(1), x.roll(1, 1),
                     torch.cat([x, x.contiguous()])), x)
    check(lambda x: (x.contiguous(memory_format=torch.channels_last), x.clone(memory_format=torch.channels_last)),
          x.contiguous())
    check(lambda x: (x.tril(), x.flip(1)), x, left=2)


def test_promotion_in_cat():
    check(lambda x, y: (torch.cat([x, y]), torch.stack([x, y]), torch.cat([y, y.bool()])), tensor(3),
          tensor(3, dtype=torch.int64))
    check(lambda x: torch.cat([x] * 150, dim=1), tensor(2, 3))


def test_views_share_memory_after_the_region():
    import dycl

    def function(x):
        y = x * 2
        return y, y.view(-1), y[0], y.transpose(0, 1), x.view(-1)

    accelerated = dycl.accelerate(function)
    x = tensor(2, 3)
    with torch.no_grad():
        y, flat, row, turned, of_input = accelerated(x)
    y.add_(100)
    assert torch.equal(flat, y.view(-1)) and torch.equal(row, y[0]) and torch.equal(turned, y.t())
    of_input[0] = 7
    assert x[0, 0] == 7


def test_memory_of_numpy():
    numpy = pytest.importorskip("numpy")
    import dycl

    array = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    accelerated = dycl.accelerate(lambda x: (*x.unbind(), *x.split(1, dim=1), x[1], x + 1))
    with torch.no_grad():
        a, b, *columns, row, more = accelerated(torch.from_numpy(array))
    array += 10
    assert a.tolist() == [10, 11, 12] and b.tolist() == row.tolist() == [13, 14, 15] \
        and columns[2].tolist() == [[12], [15]]
    assert more.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_errors():
    x = tensor(2, 3)
    for function in (lambda x: x.view(4), lambda x: x.t().view(6), lambda x: x.reshape(5), lambda x: x.transpose(0, 2),
                     lambda x: x.permute(0, 0), lambda x: x.permute(0),
                     lambda x: x.expand(3, 3), lambda x: x.narrow(0, 1, 2), lambda x: x.select(0, 2),
                     lambda x: x.split([1, 2]), lambda x: torch.cat([x, x[:, :1]]),
                     lambda x: torch.stack([x, x[0]]), lambda x: x.unsqueeze(4), lambda x: x.squeeze(2),
                     lambda x: F.pad(x, (1, 1, 1, 1, 1, 1)), lambda x: F.pad(x, (-2, -2)),
                     lambda x: x.repeat(2), lambda x: x.flatten(1, 0), lambda x: x.movedim(0, 3),
                     lambda x: torch.reshape(x, 6), lambda x: x.chunk(0), lambda x: x.unfold(0, 3, 1),
                     lambda x: x.unflatten(1, (2, 2)), lambda x: x.roll((1, 2)), lambda x: torch.cat([]),
                     lambda x: torch.stack([]), lambda x: x.view(2, 3, size=(6,))):
        check_error(function, x)
        check_error(lambda x, f=function: f(x + 1), x)


def test_too_many_dimensions_go_to_torch():
    check(lambda x: x.view(1, 1, 1, 1, 1, 1, 1, 1, 6), tensor(2, 3), left=1)
    check(lambda x: (x * 2).view(1, 1, 1, 1, 1, 1, 2, 3).unsqueeze(0), tensor(2, 3), left=None)


def test_padding_to_nothing():
    """An empty result in channels-last order: its strides are products with zero in torch."""
    x = tensor(4, 1, 4, 2).as_strided((4, 1, 4, 2), (8, 1, 2, 1))
    check(lambda x: F.pad(x, (-1, 2, -1, 1, 0, -1, 0, 2)), x, left=None)
    check(lambda x: F.pad(x, (1, 2, -2, -2, 1, 1)), tensor(4, 3, 4, 2).to(memory_format=torch.channels_last), left=None)


def test_a_quotient_of_one_lies_as_a_product():
    for x in (tensor(9, 16, 1, 9).as_strided((9, 16, 1, 9), (1, 81, 2, 9)), tensor(3, 4).t(), tensor(1, 3)):
        check(lambda x: (1.0 / x, 1 / x, 1 / (x + 1), x.__rtruediv__(1.0)), x)


SAME_SIZES = {
    "itself": lambda x: x, "transposed": lambda x: x.t(),
    "once more": lambda x: x.view(4, 4), "blocks": lambda x: x.view(2, 2, 4).permute(1, 0, 2).flatten(0, 1),
}  # fmt: skip
PARTS = {
    "first": lambda x: x[:2, :2], "last": lambda x: x[2:, 2:], "steps": lambda x: x[::2, ::2],
    "right": lambda x: x[:2, 2:], "odd": lambda x: x[1::2, 1::2],
    "transposed": lambda x: x[:2, :2].t(), "diagonal blocks": lambda x: x[::3, ::3],
}  # fmt: skip


@pytest.mark.parametrize("views", (SAME_SIZES, PARTS), ids=("whole", "parts"))
def test_one_operator_of_several_views(views):
    """Operators that are equal but for where and how their operand lies: none stands for another."""
    for function in (lambda v: v.sum(1), lambda v: v @ v[:, :1], lambda v: v.argmax(-1), lambda v: v.contiguous() * 1,
                     lambda v: v.cumsum(0), lambda v: v.amax(), lambda v: v.neg(), lambda v: torch.cat((v, v))):
        check(lambda x, f=function: [f(make(x)) for make in views.values()], tensor(4, 4), left=None)
        check(lambda x, f=function: [f(make(x + 1)) for make in views.values()], tensor(4, 4), left=None)
        check(lambda x, f=function: (lambda y: [f(make(y)) for make in views.values()])(x * 2), tensor(4, 4), left=None)
