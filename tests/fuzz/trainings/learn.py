"""What a network is set up with, and what a step consists of."""

from . import extras

CALL = "y = w.net(x)"
IN_BFLOAT16 = "with torch.autocast('cpu', dtype=torch.bfloat16):\n    y = w.net(x)\ny = y.to(x.dtype)"
ZERO = ("w.optimizer.zero_grad()", "w.optimizer.zero_grad()", "w.optimizer.zero_grad(set_to_none=False)",
        "if w.call % 2:\n    w.optimizer.zero_grad()", "for p in w.net.parameters():\n    p.grad = None",
        "for p in w.net.parameters():\n    if p.grad is not None:\n        p.grad.zero_()", "w.net.zero_grad()")


def setup(d):
    d.setup_text(f"m = list(w.net.modules())[{d.rng.randrange(6)} % len(list(w.net.modules()))]\n"
                 f"p = list(w.net.parameters())[{d.rng.randrange(9)} % len(list(w.net.parameters()))]\n"
                 f"{d.rng.choice(extras.SETUP)}")


def some(d, texts, many):
    for text in d.rng.sample(texts, d.rng.choice(many)):
        d.train_text(text)


def closure(d, loss):
    d.train_text("def closure():\n    w.optimizer.zero_grad()\n    y = w.net(x)\n"
                 f"    loss = {loss}\n    loss.backward()\n    return loss")
    d.train_text("loss = w.optimizer.step(closure)\nw.note('loss', loss)")


def parts(d, loss):
    """Backward passes before the last one: of parts of the batch, or of the same."""
    many = d.pick(1, 1, 1, 1, 1, 2, 3)
    if many > 1 and d.chance(0.6):
        d.train_text(f"for x, t in list(zip(x.chunk({many}), t.chunk({many})))[:-1]:\n    y = w.net(x)\n    loss = "
                     f"{loss}\n"
                     f"    (loss / {many}).backward()")
    elif many > 1:
        d.train_text(f"for _ in range({many - 1}):\n    y = w.net(x)\n    loss = {loss}\n    loss.backward()")


def step(d, loss):
    """loss: its text."""
    some(d, extras.BEFORE, (0, 0, 0, 1, 1, 2))
    if "LBFGS" in d.optimizer or d.chance(0.03):
        closure(d, loss)
        some(d, extras.AFTER, (0, 1))
        return
    zero, late = d.rng.choice(ZERO), d.chance(0.15)
    if not late:
        d.train_text(zero)
    parts(d, loss)
    d.train_text(IN_BFLOAT16 if d.chance(0.06) else CALL)
    some(d, extras.MIDDLE, (0, 0, 1, 2))
    d.train_text(f"loss = {loss}")
    some(d, extras.LOSS, (0, 1, 1, 2))
    if late:
        d.train_text(zero)
    d.train_text("loss.backward()" if d.chance(0.55) else d.rng.choice(extras.BACKWARD))
    some(d, extras.GRADIENTS, (0, 0, 1, 1, 2))
    d.train_text("w.optimizer.step()")
    if "Plateau" in d.scheduler:
        d.train_text(f"w.scheduler.step({d.pick('loss.detach()', 'loss.item()')}) if w.scheduler is not None else None")
    elif d.scheduler != "None":
        d.train_text("w.scheduler.step() if w.scheduler is not None else None")
    some(d, extras.AFTER, (0, 1, 1, 2))
