"""Lines of a forward pass: how a layer is applied, and what stands between layers."""

import re

from .layers import LAYERS


def apply(d, call, same):
    """The text that puts a layer's result into x. same: whether it has the shape that x has."""
    forms = ["plain"] * 5 + ["named", "checkpoint", "reentrant", "hooked", "autocast", "caught"] + ["plain"] * 3
    if same:
        forms += ["residual"] * 4 + ["scaled", "loop", "data loop", "branch", "detached", "frozen", "twice", "where",
                                     "tensor",
                                     "chunks", "in place", "inference"]
    form = d.rng.choice(forms)
    return {
        "plain": f"x = {call}", "named": f"y = {call}\nx = y * 1.0",
        "checkpoint": f"x = checkpoint(lambda x: {call}, x, use_reentrant=False)",
        "reentrant": f"x = checkpoint(lambda x: {call}, x, use_reentrant=True)",
        "hooked": f"x = {call}\nif x.requires_grad:\n    x.register_hook(lambda g: w.flow('in forward', g))",
        "autocast": f"with torch.autocast('cpu', dtype=torch.bfloat16):\n    y = {call}\nx = y.to(x.dtype)",
        "caught": f"try:\n    x = {call}\nexcept RuntimeError as error:\n    w.note('caught', str(error))",
        "residual": f"x = x + {call}", "scaled": f"x = {call} * {d.pick(0.5, 0.1)} + x",
        "loop": f"for _ in range({d.pick(2, 3)}):\n    x = {call}",
        "data loop": f"for _ in range(1 + int(x.detach().abs().mean() > {d.pick(0.3, 0.5, 0.8)})):\n    x = {call}",
        "branch": f"if x.sum() > {d.pick(0, 1, -1)}:\n    x = {call}\nelse:\n    x = x * 0.5",
        "detached": f"x = x + {call}.detach()", "frozen": f"with torch.no_grad():\n    y = {call}\nx = x + y",
        "twice": f"y = {call}\nx = y + (lambda x: {call})(y)",
        "where": f"x = torch.where(x > {d.pick(0, 0.5)}, {call}, x)",
        "tensor": f"x = x * torch.sigmoid({call})",
        "chunks": f"parts = x.chunk(2)\nx = torch.cat([(lambda x: {call})(part) for part in parts])",
        "in place": f"y = {call}\nx = x.clone().add_(y, alpha=0.5)",
        "inference": f"with torch.no_grad():\n    y = {call}.mean().item()\nx = x * (0.5 + 0.1 * min(abs(y), 1.0))",
    }[form]


BETWEEN = {
    "print": lambda d: d.pick("print(x.shape, float(x.detach().abs().mean()))", "print(x.detach().flatten()[:2])",
                              "print('training', self.training, x.requires_grad)"),
    "numpy": lambda d: d.pick("w.note('numpy', float(x.detach().numpy().mean()))",
                              "y = x.detach().numpy().copy()\nx = x + torch.from_numpy(y) * 0.1",
                              "w.note('list', x.detach().flatten()[:3].tolist())"),
    "note": lambda d: "w.note('x', x)",
    "function": lambda d: d.pick("x = Scaled.apply(x, 0.75)", "x = Squared.apply(x) + x", "x = Straight.apply(x)",
                                 "x = Written.apply(x * 1.0)"),
    "in place": lambda d: d.pick("x = x * 1.0\nx.add_(0.1)", "x = x + 0.0\nx.mul_(0.9).clamp_(-3, 3)",
                                 "x = x.clone()\nx[:, 0] = x[:, -1] * 0.5", "x = x.clone()\nx[:, :1] += 1",
                                 "x = x * 1\nx.relu_()", "x = x.clone()\nx[x > 2] = 2.0",
                                 "x = x * 1\nx.masked_fill_(x < -1, -1.0)", "x = F.dropout(x, 0.2, self.training)",
                                 "x = x.clone()\ny = x[:, 0]\ny.mul_(0.5)", "x = x * 1\nx.detach().mul_(0.9)"),
    "retained": lambda d: "if x.requires_grad and not x.is_leaf:\n    x.retain_grad()\n    w.kept.append(x)",
    "kept": lambda d: "w.kept.append(x)",
    "detach": lambda d: d.pick("x = x.detach()", "x = x.detach().requires_grad_()", "x = 0.9 * x + 0.1 * x.detach()",
                               "x = (x + x.detach()) / 2"),
    "view": lambda d: d.pick("x = x.reshape(x.shape[0], -1).view(x.shape)", "x = x.transpose(0, 1).transpose(0, 1)",
                             "x = x.flip(1)", "x = x.roll(1, 1)", "x = x.contiguous()",
                             "x = x[:, torch.arange(x.shape[1])]"),
    "arithmetic": lambda d: d.pick("x = x - x.mean()", "x = x / (1 + x.abs().max())", "x = x / (x.std() + 0.5)",
                                   "x = x * x.sigmoid()", "x = x + x.sum(1, keepdim=True) * 0.1",
                                   "x = x.tanh() + x * 0.1",
                                   "x = F.normalize(x, dim=1)", "x = x.clamp(-2, 2)",
                                   "x = x + torch.randn_like(x) * 0.1",
                                   "x = x * (torch.rand(x.shape[0]) > 0.3).to(x.dtype).view(-1, *[1] * (x.dim() - 1))",
                                   "x = torch.softmax(x, 1) * x.shape[1]", "x = x.cumsum(1) * 0.5",
                                   "x = x.sort(1).values",
                                   "x = torch.max(x, x * 0.3)", "x = (x ** 2 + 0.1).sqrt()", "x = x.exp().clamp(max=3)",
                                   "x = torch.einsum('n...,n...->n...', x, x) * 0.3", "x = x + x[:1]",
                                   "x = x * torch.arange(x.shape[-1])"),
    "grad mode": lambda d: d.pick("w.note('mode', torch.is_grad_enabled(), x.requires_grad)",
                                  "with torch.no_grad():\n    w.note('norm', float(x.norm()))",
                                  "with torch.enable_grad():\n    x = x * 1.5",
                                  "with torch.set_grad_enabled(self.training):\n    x = x * 0.9"),
    "item": lambda d: d.pick("x = x * (1 + 0.01 * int(x.detach().argmax()))",
                             "x = x / max(x.detach().abs().max().item(), 1.0)",
                             "if x.isnan().any():\n    raise ValueError('nan')",
                             "if x.detach().mean().item() > 0.2:\n    x = x * 0.5"),
    "mode": lambda d: "if not self.training:\n    x = x * 0.5",
    "error": lambda d: d.pick("try:\n    x = x @ torch.ones(77, 3)\nexcept RuntimeError as error:\n    w.note('e', "
                              "str(error))",
                              "if w.call == 3:\n    raise ValueError('third')"),
}
WEIGHTS = {"print": 2, "numpy": 3, "note": 3, "function": 4, "in place": 5, "retained": 2, "kept": 1, "detach": 2,
           "view": 3,
           "arithmetic": 8, "grad mode": 2, "item": 3, "mode": 1, "error": 0.6}


def between(d):
    d.try_text(BETWEEN[d.weighted(WEIGHTS)](d))


def some_layer(d):
    """A module or two and their use, if they take what there is."""
    texts, call, kind = d.rng.choice(LAYERS[d.kind])(d)
    names = [f"self.m{len(d.modules) + i}" for i in range(len(texts))]
    call = re.sub(r"\{(\d)\}", lambda m: names[int(m[1])], call)
    shared = [k for k, text in enumerate(d.modules) if text == (texts[0] if texts else "")]
    if shared and len(texts) == 1 and d.chance(0.3):  # the same module once more
        call, texts = call.replace(names[0], f"self.m{d.rng.choice(shared)}"), []
    if d.chance(0.12) and len(texts) == 1 and d.keeps_shape(texts, f"x = {call}"):
        count = d.pick(2, 3)
        d.try_layer([f"nn.ModuleList({texts[0]} for _ in range({count}))"],
                    f"for m in {names[0]}{d.pick('', '[::-1]', '[:2]')}:\n    x = {call.replace(names[0], 'm')}", kind)
        return
    d.try_layer(texts, apply(d, call, d.keeps_shape(texts, f"x = {call}")), kind)
