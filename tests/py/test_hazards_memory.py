"""Memory: captured tensors that change before their segment runs, in-place operators, views, out=, memory shared with
NumPy and others."""

import ctypes

import numpy as np
import pytest
import torch
from same import Programs, same


program = Programs()


@pytest.mark.parametrize("function, make, options", program.cases)
def test_memory(function, make, options):
    same(function, make, **options)


# ---- a captured tensor is modified before the segment ran ------------------------------------------------------------


@program()
def argument_in_place(x, y):
    a = x + 1
    x.mul_(2)
    b = x + 1
    x += y
    return a, b, x * 1


@program()
def argument_element(x, y):
    a = x * 2
    x[0, 0] = 9.0
    b = x * 2
    x[1] = y[1]
    return a, b, x.sum()


@program()
def argument_through_data(x, y):
    a = x.exp()
    x.data.zero_()
    b = x.exp()
    x.data[1] = 3
    return a, b, x.exp()


@program()
def argument_data_replaced(x, y):
    a = x + y
    x.data = torch.ones(2, 3)
    return a, x + 1, x.shape


@program()
def argument_set(x, y):
    a = x + 1
    x.set_(y)
    b = x + 1
    y.add_(1)
    return a, b, x + 1, x


@program()
def argument_resized(x, y):
    a = x * 3
    x.resize_(2, 6)
    return a, x * 3, x.shape


@program()
def argument_reshaped_in_place(x, y):
    a = x * 3
    x.t_()
    b = x * 3
    x.unsqueeze_(0)
    return a, b, x * 3


@program()
def view_of_argument_written(x, y):
    v = x[1:3]
    a = v + 1
    v.zero_()
    b = x + 1
    v.add_(5)
    return a, b, x + 1, v


@program()
def argument_written_view_read(x, y):
    v = x.t()
    w = v[2:]
    a = w * 2
    x.add_(1)
    return a, w * 2, v, w


@program()
def detached_argument_written(x, y):
    a = x + y
    x.detach().fill_(3)
    return a, x + y


@program()
def copy_into_argument(x, y):
    a = x + y
    x.copy_(y)
    b = x + y
    y.copy_(a)
    return a, b, y * 1


@program()
def out_argument(x, y):
    a = x + 1
    r = torch.mul(a, y, out=x)
    b = x + 1
    return a, b, r, r is x


@program()
def out_result(x, y):
    a = x + 1
    b = a * 2
    r = torch.add(a, y, out=a)
    return a, b, r is a, a + b


@program()
def out_tuple(x, y):
    v, i = torch.empty(0), torch.empty(0, dtype=torch.long)
    r = torch.max(x + 0, 1, out=(v, i))
    return v, i, r[0] is v, v + 1


@program()
def foreach_in_place(x, y):
    a = x + y
    torch._foreach_add_([x, y], 1.0)
    return a, x + y


@program()
def aten_in_place(x, y):
    a = x + y
    torch.ops.aten.add_(x, 1)
    b = x + y
    torch.ops.aten.mul_.Tensor(x, y)
    return a, b, x + 1


# ---- in-place operators on results -----------------------------------------------------------------------------------


@program()
def result_in_place(x, y):
    a = x + y
    before = id(a)
    b = a * 2
    r = a.add_(1)
    c = a * 2
    a *= y
    a -= 1
    return a, b, c, r is a, id(a) == before, a._version


@program()
def result_view_written(x, y):
    a = x + y
    v = a[0]
    b = a * 1
    v.fill_(7)
    return a, b, v, a + 0


@program()
def result_written_view_read(x, y):
    a = x + y
    v = a.view(-1)
    w = v * 1
    a.mul_(3)
    return a, v, w, v + 1


@program()
def computed_result_written_view_read(x, y):
    a = x + y
    total = a.sum().item()
    v = a.view(-1)
    more = v.sum().item()
    a.add_(1)
    return total, more, a, v, v + 1


@program()
def computed_view_written_result_read(x, y):
    a = x + y
    first = float(a[0, 0])
    v = a.t()
    second = float(v[1, 1])
    v.mul_(2)
    return first, second, a + 0, v + 0, a, v


@program()
def two_views_written(x, y):
    a = x + y
    v, w = a[:2], a[1:]
    v.add_(1)
    w.mul_(2)
    b = v + 0
    a.relu_()
    return a, v, w, b


@program()
def view_outlives_result(x, y):
    v = (x + y).view(-1)[3:9]
    v.add_(1)
    w = v[1:4]
    w.zero_()
    return v, w


@program()
def element_assignment(x, y):
    a = x + y
    b = a * 1
    a[a > 0] = 0
    a[0] = 1
    a[:, 1] = y[:, 1]
    a[1, 2] += 5
    return a, b, a + 1


@program()
def delete_element(x, y):
    a = x + y
    del a[0]
    return a


@program()
def masked_fill_in_place(x, y):
    a = x + y
    a.masked_fill_(a > 0, -1.0)
    a.clamp_(min=-0.5).sqrt_().nan_to_num_(0.25)
    return a


@program()
def in_place_changes_dtype(x, y):
    a = x > y
    b = a + 0
    a |= x > 0
    b += 1
    b /= 2
    return a, b


@program()
def in_place_broadcast_error(x, y):
    a = x + y
    a.add_(torch.ones(2, 4, 6))
    return a


@program()
def in_place_swapped(x, y):
    a, b = x + 1, y + 1
    a, b = b.add_(a), a.add_(1)
    return a, b


@program()
def result_resized(x, y):
    a = x + y
    b = a * 2
    a.resize_(2, 3)
    a.t_()
    return a, b


@program()
def result_set(x, y):
    a = x + y
    b = a + 1
    a.set_(y)
    y.add_(1)
    return a, b, a + 1


@program()
def result_data(x, y):
    a = x + y
    a.data.mul_(2)
    d = a.data
    d.add_(1)
    a.data = y * 1
    return a, d


@program()
def expanded_read_after_write(x, y):
    a = x[:1] + 1
    e = a.expand(4, 6)
    s = e.sum(0)
    a.add_(1)
    return e + 0, s, a


@program()
def expanded_written(x, y):
    e = (x[:1] + 1).expand(4, 6)
    e.add_(1)
    return e


@program()
def slices_of_argument_filled(x, y):
    out = torch.empty(4, 6)
    for i in range(4):
        out[i] = x[i] * y[i]
    return out, out.sum()


@program()
def buffer_in_place_over_steps(x, y):
    state = torch.zeros(6)
    for row in x:
        state.mul_(0.9).add_(row, alpha=0.1)
    return state


@program()
def alias_returned_twice(x, y):
    a = x + y
    return a, a, a.view(-1), a.t(), a[0], x, x.view(-1), y.t()


@program()
def argument_returned(x, y):
    return (x, x.contiguous(), x.to(torch.float32), x.view(4, 6), x.detach(), y.expand(4, 6), x.reshape(4, 6),
            x.squeeze(), x[...], x[:])


@program()
def result_aliases(x, y):
    a = x + y
    return (a, a.contiguous(), a.float(), a.detach(), a.reshape(4, 6), a[...], a.expand(4, 6), a.contiguous() is a,
            a.to(a.dtype) is a)


@program()
def untouched_view_of_written_parameter_like(x, y):
    """The version of an argument counts writes through views of it that were made inside."""
    before = x._version
    v = x.view(-1)
    v.add_(1)
    w = x[0]
    w.zero_()
    return x._version - before


# ---- NumPy and other owners of memory --------------------------------------------------------------------------------


def from_numpy():
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    return torch.from_numpy(a), a


@program(from_numpy)
def array_written(x, a):
    b = x + 1
    a[:] = 5
    c = x + 1
    a[0, 0] = -1
    d = x.relu().sum()
    a += 1
    return b, c, d, x * 1


@program(from_numpy)
def array_written_behind_a_view(x, a):
    v = x[1]
    b = v + 1
    a[1] = 7
    c = v + 1
    a[1, 2] = 0
    return b, c, v


@program(from_numpy)
def array_written_behind_several_views(x, a):
    v, w = x.chunk(2)
    p, q = x.unbind(1)[:2]
    b = v + w, p + q
    a *= 2
    return b, v + w, p + q


@program(from_numpy)
def array_written_behind_pooled_results(x, a):
    b = [(x[i] + i).view(2, 3) for i in range(4)]
    a.fill(0)
    return b, [x[i].view(2, 3).t() + 1 for i in range(4)]


def numpy_argument():
    x = torch.randn(4, 6)
    return x, x.numpy()


@program(numpy_argument)
def tensor_numpy_written(x, a):
    b = x * 2
    a[0] = 1
    c = x * 2
    x.add_(1)
    return b, c, a.copy()


@program()
def numpy_inside(x, y):
    a = x + y
    n = x.numpy()
    b = x * 2
    n[0] = 5
    m = a.numpy()
    c = a + 1
    m[1] = 9
    return b, c, x * 2, a + 0, n, m


@program()
def numpy_of_view(x, y):
    a = x + y
    n = a[1:].t().numpy()
    n[0, 0] = 5
    return a, n, n.strides


@program()
def result_over_numpy_temporary(x, y):
    a = torch.from_numpy(np.ones(6, dtype=np.float32))
    b = a + x
    a.numpy()[:] = 4
    return b, a + x


@program()
def dlpack_out(x, y):
    a = x + y
    n = np.from_dlpack(a)
    b = a * 2
    return b, n.copy(), torch.from_dlpack(n).data_ptr() == a.data_ptr()


@program()
def dlpack_in(x, y):
    n = np.ones((4, 6), dtype=np.float32)
    t = torch.from_dlpack(n)
    a = t + x
    n[:] = 3
    return a, t + x


def exported_by_dlpack():
    x = torch.randn(4, 6)
    return x, np.from_dlpack(x)


@program(exported_by_dlpack)
def dlpack_exported_argument(x, n):
    a = x + 1
    if n.flags.writeable:
        n[0] = 2
    return a, x + 1


@program()
def raw_pointer(x, y):
    a = x + y
    b = a + 1
    ctypes.memset(a.data_ptr(), 0, 24)
    return a, b, a + 1


@program()
def raw_pointer_of_argument(x, y):
    p = x.data_ptr()
    ctypes.memset(p, 0, 24)
    a = x + y
    return a, x.data_ptr() == p


@program()
def storage(x, y):
    a = x + y
    s = a.untyped_storage()
    v = a.view(-1)
    return (s.nbytes(), s.data_ptr() == a.data_ptr(), v.untyped_storage().data_ptr() == s.data_ptr(),
            a.storage_offset(), v[3:].storage_offset())


@program()
def storage_filled(x, y):
    a = x + y
    b = a + 1
    a.untyped_storage().fill_(0)
    return a, b, a + 1


@program()
def buffer_protocol(x, y):
    a = (x + y).contiguous()
    return (bytes(memoryview(a.numpy()))[:8] is not None, np.asarray(a, dtype=np.float64), np.array(a), np.add(a, 1),
            np.exp(a[0]))


@program()
def numpy_operand(x, y):
    n = np.ones((4, 6), dtype=np.float32)
    a = x + y
    return a + n, n + a, np.float32(2) * a, a * np.float64(3), a == n, a[np.array([0, 2])], a * n[0, 0]


@program(lambda: (torch.zeros(4, 6)[:, ::2], torch.randn(4, 3)))
def strided_argument(x, y):
    a = x + y
    x.copy_(a)
    return a, x * 2, a.stride()


@program(lambda: (torch.randn(1, 6).expand(4, 6), torch.randn(4, 6)))
def expanded_argument(x, y):
    return x + y, x * 2, x[1] + y, x.contiguous()


@program(lambda: (torch.randn(24),) * 2)
def same_argument_twice(x, y):
    a = x + y
    x.add_(1)
    return a, x + y, x is y


def overlapping():
    base = torch.randn(30)
    return base[:24], base[6:]


@program(overlapping)
def overlapping_arguments(x, y):
    a = x + y
    x.mul_(2)
    b = x + y
    y.add_(a)
    return a, b, x * 1, y * 1
