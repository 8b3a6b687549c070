"""Ways in which programs use autograd, on a model (autograd_parts.py): what test_autograd_programs.py draws from. A way
is one step of a program: it gets the program's world and may change it."""

import contextlib
import copy
import gc
import io
import pickle
import threading
import warnings
import weakref

import torch
import torch.nn.functional as F
from torch import nn

from autograd_parts import DISTURBS, NOTES, WIDTH, errors, note, note_flow, note_gradients, tell

ROWS = 4


class World:
    """One program's state: the model, what runs it, an optimizer, hooks, and what was kept of earlier steps."""

    def __init__(self, model, run, parts):
        self.model, self.run, self.parts = model, run, parts
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        self.hooks, self.kept, self.step = [], [], 0
        self.gradients = {}  # by name of the parameter: the object that was there last
        self.learns = False  # whether inputs require gradients

    def batch(self):
        x = torch.randn(ROWS, WIDTH)
        return x.requires_grad_() if self.learns else x, torch.randn(ROWS, WIDTH)

    def weights(self):
        return [p for p in self.model.parameters() if p.requires_grad]

    def loss(self):
        x, y = self.batch()
        return F.mse_loss(self.run(x), y), x


@contextlib.contextmanager
def no_collection():
    """What the program leaves in a cycle (a part that catches an error: its frames, and what they hold) goes when the
    collector happens to run, in eager too, and at other allocations with dycl or another Python."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


WAYS = {}


def way(function):
    WAYS[function.__name__] = function
    return function


@way
def plain(w):
    w.optimizer.zero_grad()
    loss, x = w.loss()
    note("loss", loss, x)
    loss.backward()
    note_gradients("input", x.grad)
    w.optimizer.step()


@way
def kept_gradients(w):
    w.optimizer.zero_grad(set_to_none=False)
    w.loss()[0].backward()
    w.optimizer.step()


@way
def accumulates(w):
    for _ in range(2):
        (w.loss()[0] / 2).backward()


@way
def sum_of_losses(w):
    (w.loss()[0] + w.loss()[0] * 0.5).backward()


@way
def twice(w):
    loss, _ = w.loss()
    loss.backward(retain_graph=True)
    loss.backward()
    with errors("third"):
        loss.backward()


@way
def freed(w):
    """And what can be asked for afterwards."""
    loss, x = w.loss()
    loss.backward()
    with errors("grad after"):
        torch.autograd.grad(loss, w.weights()[:1])
    with errors("sum after"):
        (loss * 2).backward()


@way
def gradients_of(w):
    loss, x = w.loss()
    unused = torch.ones(2, requires_grad=True)
    with errors("grad"):
        note_flow("grad", *torch.autograd.grad(loss, w.weights(), retain_graph=True, allow_unused=True))
    with errors("grad materialized"):
        note_flow("grad", *torch.autograd.grad(loss, [unused, *w.weights()], retain_graph=True, materialize_grads=True))
    with errors("grad of what is unused"):
        torch.autograd.grad(loss, [unused], retain_graph=True)
    with errors("grad of what needs none"):
        torch.autograd.grad(loss, [torch.ones(1)], retain_graph=True)
    with errors("grad of the input"):
        note_flow("grad", *torch.autograd.grad(loss, [x], retain_graph=True))
    with errors("grad of itself"):
        note_flow("grad", *torch.autograd.grad(loss, [loss]))


@way
def batched(w):
    x, _ = w.batch()
    out = w.run(x)
    with errors("batched"):
        note_flow("batched", *torch.autograd.grad(out, w.weights()[:2], torch.eye(out.numel()).view(-1, *out.shape)[:5],
                                             is_grads_batched=True, allow_unused=True))


@way
def with_gradient(w):
    x, y = w.batch()
    out = w.run(x)
    note("out", out)
    with errors("without"):
        out.backward()
    with errors("wrong shape"):
        out.backward(torch.ones(2))
    with errors("wrong dtype"):
        out.backward(torch.ones(out.shape, dtype=torch.float64), retain_graph=True)
    with errors("strided"):
        out.backward(y.t().contiguous().t(), retain_graph=True)
    with errors("expanded"):
        out.backward(torch.ones(()).expand(out.shape))


@way
def several_roots(w):
    x, y = w.batch()
    a, b = w.run(x), w.run(y)
    torch.autograd.backward([a.sum(), b], [None, torch.ones_like(b)])


@way
def only_some(w):
    loss, _ = w.loss()
    with errors("inputs"):
        loss.backward(inputs=w.weights()[:1], retain_graph=True)
    with errors("inputs that need none"):
        loss.backward(inputs=[torch.ones(1)])
    with errors("no inputs"):
        loss.backward(inputs=[])


@way
def gradient_penalty(w):
    x, y = w.batch()
    x.requires_grad_()
    out = w.run(x)
    with errors("penalty"):
        g, = torch.autograd.grad(out.sum(), x, create_graph=True)
        note_flow("first", g)
        (F.mse_loss(out, y) + g.square().mean()).backward()


@way
def hessian_vector(w):
    loss, _ = w.loss()
    with errors("hvp"):
        first = torch.autograd.grad(loss, w.weights(), create_graph=True, allow_unused=True)
        product = sum((g * g.detach()).sum() for g in first if g is not None)
        note_flow("hvp", *torch.autograd.grad(product, w.weights(), allow_unused=True))


@way
def create_graph_backward(w):
    loss, _ = w.loss()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss.backward(create_graph=True)
    note("warnings", sorted({str(c.message)[:60] for c in caught}))
    for p in w.model.parameters():
        note_flow("graph", p.grad)
        p.grad = None


@way
def meta_learning(w):
    names, before = zip(*w.model.named_parameters())
    x, y = w.batch()
    with errors("meta"):
        loss = F.mse_loss(w.run(x), y)
        steps = torch.autograd.grad(loss, before, create_graph=True, allow_unused=True)
        after = {n: p if g is None else p - 0.1 * g for n, p, g in zip(names, before, steps)}
        F.mse_loss(torch.func.functional_call(w.model, after, (x,)), y).backward()


@way
def freezes(w):
    for i, p in enumerate(w.model.parameters()):
        p.requires_grad_((i + w.step) % 3 != 0)
    loss, _ = w.loss()
    note("loss", loss)
    with errors("backward"):
        loss.backward()


@way
def freezes_between(w):
    """After the forward pass, before the backward pass."""
    loss, _ = w.loss()
    first = next(w.model.parameters())
    first.requires_grad_(False)
    with errors("backward"):
        loss.backward()
    first.requires_grad_(True)


@way
def all_frozen(w):
    w.model.requires_grad_(False)
    loss, x = w.loss()
    note("loss", loss)
    with errors("backward"):
        loss.backward()
    w.model.requires_grad_(True)


@way
def inputs_learn(w):
    w.learns = not w.learns
    loss, x = w.loss()
    loss.backward()
    note_gradients("input", x.grad)


@way
def inputs_of_a_graph(w):
    x = torch.randn(ROWS, WIDTH, requires_grad=True)
    y = x * 2
    y.retain_grad()
    w.run(y).sum().backward()
    note_gradients("inputs", x.grad, y.grad)


@way
def input_twice(w):
    x = torch.randn(ROWS, WIDTH, requires_grad=True)
    out = w.run(x)
    w.run(out + x).sum().backward()
    note_gradients("input", x.grad)


@way
def input_written(w):
    """After the call, before the backward pass."""
    x = torch.randn(ROWS, WIDTH)
    out = w.run(x)
    x.mul_(2)
    with errors("input written"):
        out.sum().backward()


@way
def expanded_leaf(w):
    leaf = torch.randn(1, WIDTH, requires_grad=True)
    w.run(leaf.expand(ROWS, -1)).square().sum().backward()
    note_gradients("leaf", leaf.grad)


@way
def view_of_a_leaf(w):
    leaf = torch.randn(WIDTH, ROWS + 1, requires_grad=True)
    w.run(leaf.t()[1:]).square().sum().backward()
    note_gradients("leaf", leaf.grad)


@way
def result_hooks(w):
    x, y = w.batch()
    out = w.run(x)
    if not out.requires_grad:
        return
    out.retain_grad()
    handle = out.register_hook(lambda g: note_flow("removed", g))
    out.register_hook(lambda g: note_flow("hook", g))
    out.register_hook(lambda g: g * 2)
    handle.remove()
    F.mse_loss(out, y).backward()
    note_gradients("out", out.grad, out.retains_grad)


@way
def wrong_hooks(w):
    def raises(g):
        raise KeyError("from a hook")

    for answer in (raises, lambda g: "no tensor", lambda g: torch.ones(7), lambda g: g.double()):
        x, _ = w.batch()
        out = w.run(x)
        if out.requires_grad:
            with errors("hook"):
                out.register_hook(answer)
                out.sum().backward()


@way
def parameter_hooks(w):
    for handle in w.hooks:
        handle.remove()
    w.hooks = []
    for n, p in w.model.named_parameters():
        if p.requires_grad and w.step % 2 == 0:
            w.hooks.append(p.register_hook(lambda g, n=n: note_flow("of", n, g)))
            w.hooks.append(p.register_hook(lambda g: g * 0.5))
    w.loss()[0].backward()


@way
def accumulate_hooks(w):
    handles = [p.register_post_accumulate_grad_hook(lambda q, n=n: note_gradients("accumulated", n, q.grad))
               for n, p in w.model.named_parameters() if p.requires_grad]
    w.loss()[0].backward()
    for h in handles:
        h.remove()


@way
def optimizer_in_backward(w):
    def hook(p):
        with torch.no_grad():
            p.add_(p.grad if p.grad.layout == torch.strided else p.grad.to_dense(), alpha=-0.02)
        p.grad = None

    handles = [p.register_post_accumulate_grad_hook(hook) for p in w.weights()]
    with errors("backward"):
        w.loss()[0].backward()
    for h in handles:
        h.remove()


@way
def multi_hooks(w):
    x, y = w.batch()
    out = w.run(x)
    if not out.requires_grad:
        return
    watched = [out, *w.weights()]
    for mode in ("all", "any"):
        handle = torch.autograd.graph.register_multi_grad_hook(
            watched, (lambda gs: note_flow("all", *gs)) if mode == "all" else (lambda g: note_flow("any", g)),
            mode=mode)
        F.mse_loss(out, y).backward(retain_graph=True)
        handle.remove()


@way
def node_hooks(w):
    loss, _ = w.loss()
    if loss.grad_fn is not None:
        loss.grad_fn.register_hook(lambda i, o: note_flow("node", *o))
        loss.grad_fn.register_prehook(lambda o: (o[0] * 2,))
    with errors("backward"):
        loss.backward()


@way
def module_hooks(w):
    parts = list(w.model)
    handles = [parts[0].register_full_backward_hook(lambda m, i, o: note_flow("after", *i, *o)),
               parts[-1].register_full_backward_pre_hook(lambda m, o: note_flow("before", *o)),
               parts[-1].register_full_backward_pre_hook(lambda m, o: (o[0] * 2,)),
               parts[0].register_forward_hook(lambda m, i, o: (note("forward", *i, o), o * 1.5)[1]),
               parts[-1].register_forward_pre_hook(lambda m, i: (i[0] * 0.5,)),
               w.model.register_full_backward_hook(lambda m, i, o: tuple(None if g is None else g * 3 for g in i))]
    with errors("module hooks"):
        w.loss()[0].backward()
    for h in handles:
        h.remove()


@way
@no_collection()
def raising_forward_hook(w):
    def hook(m, i, o):
        raise ValueError("from a forward hook")

    handle = list(w.model)[-1].register_forward_hook(hook)
    x, _ = w.batch()
    seen = weakref.ref(x)
    with errors("forward"):
        w.run(x)
    del x
    note("gone", seen() is None)
    handle.remove()


@way
def gradients_by_hand(w):
    for i, p in enumerate(w.weights()):
        p.grad = (None, torch.ones_like(p), torch.zeros(()).expand_as(p))[i % 3]
    w.loss()[0].backward()


@way
def wrong_gradients_by_hand(w):
    p = w.weights()[0]
    for wrong in (torch.ones(p.shape, dtype=torch.float64), torch.ones(1, 1, 1), "none"):
        with errors("by hand"):
            p.grad = wrong


@way
def gradient_written(w):
    w.loss()[0].backward()
    for p in w.weights():
        if p.grad is not None and p.grad.layout == torch.strided:
            p.grad.mul_(0.5)
            p.grad.data.clamp_(-1, 1)
    w.loss()[0].backward()


@way
def clipped(w):
    w.optimizer.zero_grad()
    w.loss()[0].backward()
    note("norm", nn.utils.clip_grad_norm_([p for p in w.weights() if p.grad is None or not p.grad.is_sparse], 0.1))
    w.optimizer.step()


@way
def evaluates(w):
    w.model.eval()
    x, y = w.batch()
    with torch.no_grad():
        note("without", w.run(x))
    note("with", w.run(x))
    with torch.inference_mode():
        out = w.run(x)
        note("inference", out)
    with errors("inference out"):
        (out * w.weights()[0].sum()).backward()
    w.model.train()


@way
def evaluates_and_learns(w):
    w.model.eval()
    w.loss()[0].backward()
    w.model.train()


@way
def inference_input(w):
    with torch.inference_mode():
        x = torch.randn(ROWS, WIDTH)
    with errors("inference input"):
        w.run(x).sum().backward()


@way
def under_no_grad_then_not(w):
    x, y = w.batch()
    with torch.no_grad():
        a = w.run(x)
        with torch.enable_grad():
            b = w.run(x)
    note("no grad", a, b)
    with errors("backward"):
        (a + b).sum().backward()


@way
def saves_and_loads(w):
    file = io.BytesIO()
    torch.save([w.model.state_dict(), w.optimizer.state_dict()], file)
    w.loss()[0].backward()
    w.optimizer.step()
    file.seek(0)
    model, optimizer = torch.load(file)
    loss, _ = w.loss()
    with errors("load"):
        w.model.load_state_dict(model)
        w.optimizer.load_state_dict(optimizer)
    with errors("backward of the old"):
        loss.backward()


@way
def loads_by_assignment(w):
    w.model.load_state_dict({k: v.clone() for k, v in w.model.state_dict().items()}, assign=True)
    w.optimizer = torch.optim.SGD(w.model.parameters(), lr=0.01)
    w.loss()[0].backward()


@way
def deep_copies(w):
    with errors("copy"):
        other = copy.deepcopy(w.model)
        x, y = w.batch()
        F.mse_loss(other(x), y).backward()
        note_gradients("copy", *[p.grad for p in other.parameters()])


@way
def pickles(w):
    with errors("pickle"):
        other = pickle.loads(pickle.dumps(w.model))
        x, y = w.batch()
        other(x).square().sum().backward()
        note_gradients("copy", *[p.grad for p in other.parameters()])


@way
def anomaly(w):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.detect_anomaly():
            x, _ = w.batch()
            with errors("anomaly"):
                (w.run(x) * 0 - 1).sqrt().sum().backward()


@way
def anomaly_backward_only(w):
    loss, _ = w.loss()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.set_detect_anomaly(True):
            with errors("anomaly"):
                loss.backward()


@way
def saved_hooks(w):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.double() if t.dtype == torch.float32 else t,
                                                  lambda t: t.float() if t.dtype == torch.float64 else t):
        loss, _ = w.loss()
    with errors("backward"):
        loss.backward()


@way
def scaler(w):
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    w.optimizer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = w.loss()
    with errors("scaler"):
        scaler.scale(loss).backward()
        scaler.step(w.optimizer)
        scaler.update()
    note("scale", scaler.get_scale())


@way
def autocast(w):
    with errors("autocast"):
        with torch.autocast("cpu", torch.bfloat16):
            x, _ = w.batch()
            out = w.run(x)
        out.float().square().mean().backward()


@way
def lbfgs(w):
    optimizer = torch.optim.LBFGS(w.weights(), max_iter=2, lr=0.1)
    x, y = w.batch()

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(w.run(x), y)
        loss.backward()
        return loss

    with errors("lbfgs"):
        note("loss", optimizer.step(closure))


@way
def functional(w):
    parameters = {k: p.detach() for k, p in w.model.named_parameters()}
    x, y = w.batch()

    def loss(p):
        return F.mse_loss(torch.func.functional_call(w.model, p, (x,)), y)

    with errors("func.grad"):
        note_flow("func", *torch.func.grad(loss)(parameters).values())


@way
def transforms(w):
    x, _ = w.batch()
    x = x.detach()
    for what in (lambda: torch.func.vmap(lambda r: w.run(r[None])[0])(x), lambda: torch.func.jacrev(w.run)(x),
                 lambda: torch.func.jvp(w.run, (x,), (torch.ones_like(x),)),
                 lambda: torch.func.vjp(w.run, x)[1](torch.ones_like(x)),
                 lambda: torch.func.hessian(lambda t: w.run(t).sum())(x)):
        with errors("transform"):
            found = what()
            note_flow("transform", *(found if isinstance(found, tuple) else (found,)))


@way
def autograd_functional(w):
    x, _ = w.batch()
    x = x.detach()
    for what in (lambda: torch.autograd.functional.jacobian(w.run, x),
                 lambda: torch.autograd.functional.vjp(w.run, x, torch.ones_like(x)),
                 lambda: torch.autograd.functional.hvp(lambda t: w.run(t).square().sum(), x, torch.ones_like(x)),
                 lambda: torch.autograd.functional.vhp(lambda t: w.run(t).sum(), x, torch.ones_like(x))):
        with errors("functional"):
            found = what()
            note_flow("functional", *(found if isinstance(found, tuple) else (found,)))


@way
def forward_mode(w):
    import torch.autograd.forward_ad as fwad
    x, _ = w.batch()
    with errors("dual"):
        with fwad.dual_level():
            out = w.run(fwad.make_dual(x.detach(), torch.ones_like(x)))
            tangent = fwad.unpack_dual(out).tangent
            note_flow("tangent", None if tangent is None else tangent)


@way
def result_written(w):
    x, _ = w.batch()
    out = w.run(x)
    with errors("in place"):
        out.mul_(2)
        out[0] = 1
        note("written", out)
        out.sum().backward()


@way
def result_data_written(w):
    x, _ = w.batch()
    out = w.run(x)
    out.data.zero_()
    with errors("data"):
        out.square().sum().backward()


@way
def result_detached(w):
    x, _ = w.batch()
    out = w.run(x)
    with errors("detach_"):
        out.detach_()
    note("detached", out)
    w.run(out).sum().backward()


@way
def weights_written(w):
    """Between the passes."""
    p = w.weights()[w.step % len(w.weights())]
    loss, _ = w.loss()
    with torch.no_grad():
        p.mul_(1.01)
    with errors("weight written"):
        loss.backward()
    w.model.zero_grad()  # where it fails, others have their gradients or have not


@way
def weights_replaced(w):
    loss, _ = w.loss()
    for p in w.model.parameters():
        p.data = p.data * 0.99
    with errors("weights replaced"):
        loss.backward()


@way
def step_before_backward(w):
    x, y = w.batch()
    a = w.run(x).sum()
    w.run(y).sum().backward()
    w.optimizer.step()
    with errors("old graph"):
        a.backward()
    w.model.zero_grad()


@way
def keeps_results(w):
    x, _ = w.batch()
    out = w.run(x)
    out.sum().backward()
    w.kept.append(out)
    note("kept", *[t for t in w.kept], *[t._version for t in w.kept])


@way
def keeps_graphs(w):
    """Backward passes in another order than the forward passes."""
    losses = [w.loss()[0] for _ in range(3)]
    for i in (1, 2, 0):
        losses[i].backward()


@way
@no_collection()
def lets_go(w):
    x, y = w.batch()
    out = w.run(x)
    seen = [weakref.ref(x), weakref.ref(out)]
    loss = F.mse_loss(out, y)
    loss.backward()
    del x, out, loss
    note("gone", *[s() is None for s in seen])


@way
@no_collection()
def lets_go_without_backward(w):
    x, y = w.batch()
    out = w.run(x)
    seen = [weakref.ref(x), weakref.ref(out)]
    del x, out
    note("gone", *[s() is None for s in seen])


@way
def fails(w):
    """In the middle of the model, and in its first layer."""
    for x in (torch.randn(ROWS, WIDTH + 1), torch.randn(ROWS, WIDTH).double()):
        with errors("forward"):
            w.run(x)
    w.loss()[0].backward()


@way
def other_sizes(w):
    for rows in (1, 7):
        with errors("rows"):
            w.run(torch.randn(rows, WIDTH)).square().mean().backward()


@way
def other_thread(w):
    def work():
        with errors("other thread"):
            w.loss()[0].backward()
        note("in a thread", torch.is_grad_enabled())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@way
def backward_in_a_thread(w):
    loss, _ = w.loss()

    def work():
        with errors("backward"):
            loss.backward()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@way
def several_threads(w):
    """The same model, without drawing: gradients only differ in the order of sums."""
    xs = [torch.randn(ROWS, WIDTH) for _ in range(3)]
    if DISTURBS & set(w.parts):
        return
    before = len(NOTES)
    w.model.eval()

    def work(x):
        with contextlib.suppress(Exception):
            torch.autograd.grad(w.run(x).sum(), w.weights(), allow_unused=True)

    threads = [threading.Thread(target=work, args=(x,)) for x in xs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    w.model.train()
    del NOTES[before:]


@way
def data_loader(w):
    data = torch.utils.data.TensorDataset(torch.randn(2 * ROWS, WIDTH), torch.randn(2 * ROWS, WIDTH))
    for x, y in torch.utils.data.DataLoader(data, ROWS):
        w.optimizer.zero_grad()
        F.mse_loss(w.run(x), y).backward()
        w.optimizer.step()


@way
def adam(w):
    optimizer = torch.optim.AdamW([p for p in w.weights()], lr=0.01, eps=0.1)
    with errors("adam"):
        for _ in range(2):
            optimizer.zero_grad()
            w.loss()[0].backward()
            optimizer.step()


@way
def averaged(w):
    average = torch.optim.swa_utils.AveragedModel(w.model)
    w.loss()[0].backward()
    average.update_parameters(w.model)
    with torch.no_grad():
        note("averaged", average(torch.randn(ROWS, WIDTH)))


@way
def double_model(w):
    with errors("double"):
        other = copy.deepcopy(w.model).double()
        other(torch.randn(ROWS, WIDTH).double()).sum().backward()
        note_gradients("double", *[p.grad for p in other.parameters()])


@way
def kept_parts(w):
    """What parts left behind: intermediate results."""
    loss, _ = w.loss()
    found = [t for m in w.model for t in getattr(m, "kept", ())]
    note("before", *found)
    for t in found:
        if t.requires_grad and not t.is_leaf:
            t.retain_grad()
            t.register_hook(lambda g: note_flow("kept hook", g))
    with errors("grad of kept"):
        wanted = [t for t in found if t.requires_grad]
        if wanted:
            note_flow("grad", *torch.autograd.grad(loss, wanted, retain_graph=True, allow_unused=True))
    with errors("backward"):
        loss.backward()
    note_gradients("kept", *[t.grad for t in found])


@way
def teacher(w):
    """Another copy without gradients beside it."""
    with errors("teacher"):
        other = copy.deepcopy(w.model).requires_grad_(False)
        x, _ = w.batch()
        with torch.no_grad():
            target = other(x)
        (w.run(x) - target).square().mean().backward()
        note("target", target)


@way
def no_loss(w):
    """Nobody goes back."""
    note("out", w.run(w.batch()[0]))


def state(w):
    """What a program can tell between its steps."""
    seen = {}
    for n, p in w.model.named_parameters():
        same = p.grad is w.gradients.get(n)
        note("parameter", n, p, same and p.grad is not None)
        note_gradients("gradient", p.grad)
        seen[n] = p.grad
    w.gradients = seen
    for n, b in w.model.named_buffers():
        note("buffer", n, b)
    note("state", torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
         torch.is_anomaly_enabled(), torch.rand(1), w.model.training)


__all__ = ["WAYS", "World", "state", "tell"]
