"""What a region's program asks of plain tensors: methods, attributes, elements, functions. Each answer is eager's, and
what looks at no values ends no segment."""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import dycl
import started
from same import same
from suite import FULL

ATTRIBUTES = """shape dtype device ndim requires_grad is_leaf grad_fn grad layout itemsize nbytes is_cuda is_meta
    is_sparse is_quantized _version data real T mT H mH is_cpu is_nested output_nr retains_grad name
    device.type shape[0]""".split()
METHODS = """size() size(0) size(dim=-1) stride() stride(0) dim() numel() nelement() element_size()
    is_contiguous() storage_offset() get_device() is_floating_point() is_complex() is_inference()
    is_signed() is_conj() type() __len__() relu() exp() abs() neg() square() sqrt() sigmoid() tanh() t()
    ravel() isnan() isfinite() logical_not() floor() sign() fliplr() flipud() adjoint() resolve_conj()
    tolist() argwhere() mean() sum() sum(0) sum(dim=0,keepdim=True) std(1) amax(1) argmax(-1) max(0)
    norm() softmax(-1) clamp(0,1) clamp(min=0.5) float() double() long() half() bool() int()
    to(torch.float64) to("cpu") to(x) type(torch.float64) type_as(x) cpu() contiguous() clone() detach()
    view(-1) view(3,4) reshape(2,6) flatten() permute(1,0) transpose(0,1) unsqueeze(0) squeeze()
    expand(2,4,3) repeat(1,2) chunk(2) split(2) split([1,3]) unbind(0) cumsum(0) any() all() sort()
    topk(2) index_select(0,i) gather(0,i[None]) new_zeros(3) new_ones((2,2)) new_full((2,),1.5)
    new_tensor([1.0]) masked_fill(m,0) where(m,x) roll(1) flip(0) is_pinned() is_shared() dim_order()
    unflatten(1,(1,3)) requires_grad_(False) add_(1) mul_(2) zero_() fill_(3) copy_(x) clamp_(0,1)
    sqrt_() neg_() lerp_(x,0.5) add(1,alpha=2) sub(x) div(2,rounding_mode="floor") pow(2) eq(x)
    matmul(x.T) mm(x.mT) addmm(x,x.T) item() relu(1) add() add("a") view("a") nothing() sum(7) size(9)
    expand(1)""".split()
EXPRESSIONS = """x+1 1+x x-1 1-x x*2 2*x x/2 1/x x**2 2**x x//2 7//x x%2 7%x -x +x abs(x) x@x.T x>0 0<x x<=x x==x
    x!=1 x==None x+w w+x w*x x*w w@x.T ~m m&m m|m m^m m&True len(x) x[0] x[0,1] x[...,0] x[None]
    x[:,::2] x[i] x[m] x[-1:] x[9] x["a"] x[0.5] list(x) bool(x[0,0]>0) float(x[0,0]) int(x[0,0])
    x[0,0].item() 3*i i//2 i<<1 hash(x)==id(x) 1.5-x 1.5*i True+i x+None x+"a" [1]+x (x)in[1] (3)in(i)
    torch.relu(x) torch.add(x,1) torch.cat([x,x]) torch.cat((x,)) torch.stack([x,w])
    torch.where(m,x,0.0) torch.zeros(3) torch.zeros((2,3)) torch.ones(2,dtype=torch.int64)
    torch.full((2,),3.0) torch.arange(5) torch.arange(1,7,2) torch.eye(3) torch.zeros_like(x)
    torch.full_like(x,2) torch.tensor(1.5) torch.tensor([1,2]) torch.as_tensor(x) torch.linspace(0,1,5)
    torch.empty(2).zero_() torch.numel(x) torch.is_tensor(x) torch.is_floating_point(x) torch.equal(x,x)
    torch.allclose(x,x) torch.result_type(x,1) torch.max(x,-1) torch.split(x,2)
    torch.einsum("ij,kj->ik",x,x) torch.matmul(x,x.T) torch.relu() torch.relu("a") torch.add(x)
    torch.cat(x) torch.zeros("a") torch.nothing torch.softmax(x,dim=0) F.relu(x) F.gelu(x)
    F.softmax(x,-1) F.layer_norm(x,(3,)) F.linear(x,w) F.dropout(x,0.5,False) F.pad(x,(1,1))
    F.embedding(i,x) F.normalize(x) F.one_hot(i) F.mse_loss(x,x) F.silu(x,inplace=True)
    F.interpolate(x[None],2) torch.broadcast_tensors(x,x) torch.meshgrid(i,i,indexing="ij")
    torch.norm(x) torch.unique(i) torch.isin(i,i) isinstance(x,torch.Tensor) type(x).__name__
    x.__class__.__name__ hasattr(x,"foo") f"{x[0,0]:.2f}" str(x)""".split()


def evaluate(expression):
    space = {"torch": torch, "F": F}
    source = f"lambda x, w, i, m: ({expression}, x)"  # what was written to x, too
    return eval(source, space)


def inputs(make):
    torch.manual_seed(0)
    x = make(torch.rand(4, 3) + 0.25)
    weight = torch.nn.Parameter(torch.rand(4, 3), requires_grad=False)
    return x, weight, torch.arange(3), torch.tensor([True, False, True])


MAKERS = {
    "tensor": lambda x: x,
    "parameter": lambda x: torch.nn.Parameter(x, requires_grad=False),
    "transposed": lambda x: x.t().contiguous().t(),
    "integers": lambda x: (x * 10).long(),
    "gradient": lambda x: x.requires_grad_(),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
def test_answers(kind, grad):
    """Of the kinds behind the first, half of the expressions with gradients and the others without; DYCL_TEST_FULL=1:
    all of them."""
    wrong = []
    expressions = [f"x.{name}" for name in ATTRIBUTES + METHODS] + EXPRESSIONS
    for expression in expressions if FULL or kind == "tensor" else expressions[grad::2]:
        try:
            same(evaluate(expression), lambda: inputs(MAKERS[kind]), calls=2, grad=grad, recorded=None)
        except AssertionError as error:
            wrong.append((expression, str(error).split("\n")[0]))
    assert not wrong


@pytest.mark.parametrize("expression", [f"x.{name}" for name in ATTRIBUTES[:24]] +
                         "x.size(0) x.dim() x.stride() x.storage_offset() len(x) x.numel() x.is_inference()".split())
def test_what_looks_at_no_values_ends_no_segment(expression):
    ask = evaluate(expression)

    @dycl.accelerate
    def program(x, w, i, m):
        y = x + 1
        ask(x, w, i, m)
        return y * 2

    with torch.no_grad():
        program(*inputs(MAKERS["tensor"]))
    assert dycl.stats(program)["segments"] == 1


@pytest.mark.parametrize("write", """x.add_(1) x.zero_() x.relu_() x.copy_(w) x.mul_(w) x.fill_(2) x.clamp_(0,1)
    x.__iadd__(1) setitem(x,0,1.0) setitem(x,(0,slice(None)),2) setitem(x,i,2.0)
    x[0].zero_() x.view(-1).add_(1) x.t().mul_(2) x.data.add_(1) x.add_(y)
    setitem(x,0,y[1])""".split())
@pytest.mark.parametrize("reads", [False, True], ids=["apart", "of what is read"])
def test_written_beside_what_is_recorded(write, reads):
    """A write that touches nothing recorded ends no segment; one that does comes after what reads it."""
    change = eval(f"lambda x, w, i, y: {write}", {"setitem": operator.setitem})

    def program(x, w, i, m):
        y = w + 1
        if reads:
            z = x * 2
        change(x, w, i, y)
        return y * 2, z if reads else y, x + 1, x

    stats = same(program, lambda: inputs(MAKERS["tensor"]))
    if not reads and all(part not in write for part in ("y", "x[", "view", "x.t", "data")):
        assert stats["segments"] <= stats["calls"] + 1  # the first call asks torch's parser


@pytest.mark.parametrize("expression", """x.shape x.dim() x.T x+1 x.relu() x.add(1) x[0] torch.relu(x) F.relu(x)
    torch.zeros(2) len(x) 1-x""".split())
def test_other_modes_see_each_call(expression):
    """A mode of the program's above ours, as in eager; and none where modes are off."""
    ask = evaluate(expression)

    class Counts(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(getattr(function, "__name__", str(function)))
            return function(*args, **(kwargs or {}))

    def program(x, w, i, m):
        y = x * 2
        with Counts():
            a = ask(x, w, i, m)
        with torch._C.DisableTorchFunction():
            b = ask(x, w, i, m)
        return a, b, y

    logs = []

    def again():
        nonlocal seen
        seen = []
        logs.append(seen)

    seen = []
    same(program, lambda: inputs(MAKERS["tensor"]), between=again)
    assert logs[0] == logs[1] and logs[0]


class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs or {})
        LOG.append(getattr(function, "__name__", str(function)))
        return result


LOG = []


@pytest.mark.parametrize("expression", """x.shape x.dim() x.T x+l l+x x.relu() x.add(l) l[0] l.shape
    torch.add(x,l)""".split())
def test_subclasses_see_their_calls(expression):
    source = eval(f"lambda x, l: ({expression}, x * 2)", {"torch": torch})
    results, logs = [], []
    with torch.no_grad():
        for function in source, dycl.accelerate(source):
            LOG.clear()
            x = torch.rand(4, 3)
            results.append([type(r).__name__ for r in function(x, torch.rand(4, 3).as_subclass(Loud))])
            logs.append(LOG[:])
    assert results[0] == results[1] and logs[0] == logs[1]


def test_replaced_methods_are_called():
    def program(x):
        return x.relu(), x + 1, x.shape, x[0]

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        accelerated = dycl.accelerate(program)
        accelerated(torch.rand(3, 3))
        for name in "relu", "__add__", "__getitem__":
            patch.setattr(torch.Tensor, name, lambda self, *args, name=name: (name, *args))
        patch.setattr(torch.Tensor, "shape", property(lambda self: "shape"))
        assert accelerated(torch.rand(3, 3)) == (("relu",), ("__add__", 1), "shape", ("__getitem__", 0))
    same(program, lambda: (torch.ones(3, 3),), accelerate=lambda *_: accelerated)


def test_methods_replaced_past_the_metaclass():
    """type.__setattr__ calls no method of torch's metaclass, which we watch."""
    def program(x):
        return x.sigmoid() * 2

    with torch.no_grad():
        accelerated, x = dycl.accelerate(program), torch.rand(3)
        expected = accelerated(x)
        assert dycl.stats(accelerated)["recorded"]
        type.__setattr__(torch.Tensor, "sigmoid", lambda self: 3)
        try:
            assert accelerated(x) == 6
        finally:
            type.__delattr__(torch.Tensor, "sigmoid")
        assert torch.equal(accelerated(x), expected) and dycl.stats(accelerated)["plain_mode"] == 1


def test_attributes_of_classes_below_the_metaclass():
    """A metaclass's super().__setattr__ is allowed where Python's methods alone lie between it and type's."""
    class Meta(type(torch.Tensor)):
        def __setattr__(cls, name, value):
            super().__setattr__(name, (value,))

        def __delattr__(cls, name):
            super().__delattr__(name)

    class Mine(torch.Tensor, metaclass=Meta):
        pass

    with torch.no_grad():
        dycl.accelerate(lambda x: x + 1)(torch.ones(2))
    Mine.kind = 1
    assert Mine.kind == (1,)
    del Mine.kind
    assert not hasattr(Mine, "kind")
    for wrong in (lambda: delattr(torch.Tensor, "kind"), lambda: type(torch.Tensor).__setattr__(torch.Tensor, "kind")):
        with pytest.raises((AttributeError, TypeError)):
            wrong()


def test_the_class_shows_nothing():
    """In a process of its own, what Python sees of torch.Tensor before and after."""
    import subprocess
    import sys
    code = """
import torch
def look():
    bases = torch.Tensor, torch._C.TensorBase, torch.nn.Parameter
    return [(name, id(o), repr(o), getattr(o, "__doc__", None)) for c in bases for name, o in sorted(vars(c).items())]
before = look()
import dycl
with torch.no_grad():
    dycl.accelerate(lambda x: x.relu() + x.shape[0])(torch.ones(2))
assert look() == before
"""
    started.run(["-c", code], check=True, timeout=120)
