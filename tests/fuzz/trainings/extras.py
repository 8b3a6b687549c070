"""Lines of a step that stand beside the usual ones, by where they may stand."""

LEARNED = "[p for p in w.net.parameters() if p.requires_grad]"
BATCH_NORM = "isinstance(m, nn.modules.batchnorm._BatchNorm)"

BEFORE = (
    "x = x + torch.randn_like(x) * 0.01", "x = x.requires_grad_()", "w.net.train(w.call % 2 == 1)", "w.net.train()",
    "if w.call == 3:\n    w.net.load_state_dict(saved(w.net))",
    "if w.call == 2:\n    w.net.load_state_dict(saved(w.net), assign=True)\n    w.optimizer = optimizer_of(w.net)\n   "
    " w.scheduler = None",
    "if w.call == 2:\n    w.optimizer.load_state_dict(copy.deepcopy(w.optimizer.state_dict()))",
    "if w.call == 3:\n    w.net = {accelerate}(copy.deepcopy(w.net))\n    w.optimizer = optimizer_of(w.net)\n    "
    "w.scheduler = None",
    "if w.call == 3:\n    w.optimizer = optimizer_of(w.net)\n    w.scheduler = None",
    "for p in list(w.net.parameters())[:2]:\n    p.requires_grad_(w.call != 2)",
    "for i, p in enumerate(w.net.parameters()):\n    p.requires_grad_((w.call + i) % 2 == 0)",
    "if w.call == 2:\n    next(w.net.parameters()).data.mul_(0.9)",
    "if w.call == 2:\n    next(w.net.parameters()).detach().numpy()[:1] *= 0.5",
    "with torch.no_grad():\n    for p in w.net.parameters():\n        p.mul_(0.999)",
    "with torch.no_grad():\n    w.note('first', w.net(x))", "w.net.zero_grad()",
    "if w.call == 3:\n    next(w.net.parameters()).data = next(w.net.parameters()).data.clone()",
    "if w.call == 2:\n    for m in w.net.modules():\n        if hasattr(m, 'reset_parameters'):\n            "
    "m.reset_parameters()",
    "if w.call == 3:\n    w.net.to(torch.float64).to(x.dtype)",
    "if w.call == 2:\n    for m in w.net.modules():\n        if " + BATCH_NORM + ":\n            m.eval()",
    "if w.call == 3:\n    for m in w.net.modules():\n        if " + BATCH_NORM + ":\n            m.momentum = 0.5",
    "if w.call == 2:\n    with torch.no_grad():\n        nn.init.normal_(next(w.net.parameters()), std=0.2)",
    "order = torch.randperm(len(x))\nx, t = x[order], t[order]", "x = 0.7 * x + 0.3 * x.flip(0)", "x = x.clone()",
    "x = torch.from_numpy(x.numpy().copy())", "x = x.detach().requires_grad_(w.call % 2 == 0)",
    "if x.dim() == 4:\n    x = x.to(memory_format=torch.channels_last)",
    "if x.dim() > 2:\n    x = x.transpose(1, 2).contiguous().transpose(1, 2)",
    "x, t = x[:max(len(x) - 1, 1)], t[:max(len(t) - 1, 1)]",
)
SCALED = "scaler = torch.amp.GradScaler('cpu', init_scale=64.0)"
MIDDLE = (
    "w.note('y', y)", "w.kept.append(y)", "y.register_hook(lambda g: w.flow('y', g)) if y.requires_grad else None",
    "y.retain_grad() if y.requires_grad else None\nw.kept.append(y)",
    "w.note('right', (y.detach().flatten()[:3] > 0).sum().item())", "print(y.shape, y.detach().mean())",
    "y = y * 1.0\ny.mul_(0.5)", "y = y.clamp(-3, 3)", "w.note('numpy', y.detach().numpy().sum())",
    "w.note('right', (y.detach().flatten(1).argmax(1) == 0).float().mean().item())",
    "with torch.no_grad():\n    y2 = w.net(x)\ny = y + 0.1 * y2", "y = (y + w.net(x)) / 2",
    "y = torch.func.functional_call(w.net, {k: p * 0.9 for k, p in w.net.named_parameters()}, (x,)) * 0.5 + y",
    "if y.requires_grad:\n    y.register_hook(lambda g: g * 0.5)",
)
LOSS = (
    "w.note('loss', loss)", "print('loss', loss.item())", "w.kept.append(loss)",
    "loss = loss + y.square().mean() * 0.1",
    "w.note('nan', bool(loss.isnan()))", "if loss.item() > 5:\n    loss = loss / 2",
    "loss = loss + 0.01 * sum(p.abs().sum() for p in w.net.parameters())",
    "loss = loss + 0.01 * torch.cat([p.flatten() for p in w.net.parameters()]).norm()",
    "loss = loss.sqrt() if loss > 0.5 else loss",
    "g, = torch.autograd.grad(y.sum(), x, create_graph=True, allow_unused=True) if x.requires_grad and y.requires_grad "
    "else (None,)\nif g is not None and g.requires_grad:\n"
    "    loss = loss + ((g.flatten(1).norm(dim=1) - 1) ** 2).mean() * 0.1",
    "with torch.no_grad():\n    w.note('again', loss * 2)", "w.losses.append(loss.detach())",
    "w.losses.append(loss.item())", "w.losses.append(loss.detach())\nw.note('mean', torch.stack(w.losses[-3:]).mean())",
    "if w.last is not None:\n    loss = loss + 0.1 * (loss.detach() - w.last)\nw.last = loss.detach()",
    "loss = loss / loss.detach().clamp(min=0.5)", "loss = torch.stack([loss, loss * 0.5]).sum()",
)
BACKWARD = [
    "loss.backward(retain_graph=True)\nloss.backward()", "loss.backward(torch.full_like(loss, 0.5))",
    f"loss.backward(inputs={LEARNED})", f"loss.backward(inputs={LEARNED}[:2])",
    f"learned = {LEARNED}\n"
    "for p, g in zip(learned, torch.autograd.grad(loss, learned, allow_unused=True)):\n    p.grad = g",
    f"learned = {LEARNED}\n"
    "grads = torch.autograd.grad(loss, learned, create_graph=True, allow_unused=True)\nw.flow('grads', *grads)\n"
    "(loss + sum(g.square().sum() for g in grads if g is not None) * 0.05).backward()",
    "(loss / 2).backward(retain_graph=True)\nw.flow('half', *[p.grad for p in list(w.net.parameters())[:1]])\n"
    "(loss / 2).backward()",
    "torch.autograd.backward([loss, y], [None, torch.ones_like(y) * 0.01])",
    "loss.backward(create_graph=True)\nw.flow('graph', *[p.grad for p in w.net.parameters()])\n"
    "for p in w.net.parameters():\n    p.grad = None if p.grad is None else p.grad.detach()",
    "loss.backward()\ntry:\n    loss.backward()\nexcept RuntimeError as error:\n    w.note('second', str(error))",
    SCALED + "\nscaler.scale(loss).backward()\nscaler.unscale_(w.optimizer)",
    "with torch.autograd.set_detect_anomaly(True, check_nan=False):\n    loss.backward()",
    "y.backward(torch.autograd.grad(loss, y, retain_graph=True)[0])",
    f"learned = {LEARNED}\nfast = [p - 0.1 * g if g is not None else p for p, g in zip(learned, "
    f"torch.autograd.grad(loss, "
    "learned, create_graph=True, allow_unused=True))]\n"
    "names = [k for k, p in w.net.named_parameters() if p.requires_grad]\n"
    "torch.func.functional_call(w.net, dict(zip(names, fast)), (x,)).square().mean().backward()",
]
GRADIENTS = (
    "w.note('norm', torch.nn.utils.clip_grad_norm_(w.net.parameters(), 0.5))",
    "w.note('norm', torch.nn.utils.clip_grad_norm_(w.net.parameters(), 0.5, foreach=True))",
    "torch.nn.utils.clip_grad_norm_(w.net.parameters(), 0.3, norm_type=1.0)",
    "torch.nn.utils.clip_grad_value_(w.net.parameters(), 0.1)", "w.note('norm', float(torch.nn.utils.clip_grad_norm_("
    "[p for p in w.net.parameters() if p.grad is not None], 1.0, norm_type=float('inf'))))",
    "w.flow('gradients', *[p.grad for p in w.net.parameters()])",
    "for p in w.net.parameters():\n    if p.grad is not None:\n        p.grad.mul_(0.9)",
    "for p in w.net.parameters():\n    if p.grad is not None and not p.grad.is_sparse:\n"
    "        p.grad += torch.randn_like(p.grad) * 0.01",
    "for p in w.net.parameters():\n    if p.grad is not None and not p.grad.is_sparse:\n        p.grad = p.grad / "
    "(p.grad.norm() + 1e-2)",
    "w.kept += [p.grad for p in w.net.parameters() if p.grad is not None]",
    "for p in w.net.parameters():\n    if p.grad is not None and w.call == 2:\n        p.grad = None",
    "w.note('total', sum(float(p.grad.abs().sum()) for p in w.net.parameters() if p.grad is not None))",
    "for p in w.net.parameters():\n    p.grad = p.grad if p.grad is not None else torch.zeros_like(p)",
    "w.flow('x', x.grad if x.is_leaf else None)",
)
AFTER = (
    "w.optimizer.zero_grad()", "w.optimizer.zero_grad(set_to_none=False)",
    "w.net.eval()\nwith torch.no_grad():\n    w.note('evaluated', w.net(x.detach()))\nw.net.train()",
    "with torch.inference_mode():\n    w.note('inferred', float(w.net(x.detach()).sum()))",
    "if w.average is None:\n    w.average = copy.deepcopy(w.net)\nwith torch.no_grad():\n"
    "    for a, p in zip(w.average.parameters(), w.net.parameters()):\n        a.lerp_(p, 0.1)",
    "if w.average is None:\n    w.average = copy.deepcopy(w.net)\nfor a, p in zip(w.average.parameters(), "
    "w.net.parameters()):\n    a.data.mul_(0.9).add_(p.data, alpha=0.1)",
    "if w.average is None:\n    w.average = torch.optim.swa_utils.AveragedModel(w.net)\n"
    "w.average.update_parameters(w.net)",
    "if w.average is None:\n    w.average = torch.optim.swa_utils.AveragedModel(w.net, use_buffers=True, "
    "multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))\nw.average.update_parameters(w.net)",
    "w.note('weights', sum(p.detach().sum() for p in w.net.parameters()).item())",
    "w.note('numpy', next(w.net.parameters()).detach().numpy().sum())",
    "w.note('vector', nn.utils.parameters_to_vector(w.net.parameters()))",
    "nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(w.net.parameters()).detach() * 0.99, "
    "w.net.parameters())",
    "for p in w.net.parameters():\n    p.data.clamp_(-0.5, 0.5)",
    "with torch.no_grad():\n    for p in w.net.parameters():\n        p.copy_(p / p.norm().clamp(min=1.0))",
    "if w.call == 2:\n    w.net.load_state_dict(copy.deepcopy(w.net.state_dict()))",
    "for group in w.optimizer.param_groups:\n    group['lr'] = group['lr'] * 0.9",
    "for group in w.optimizer.param_groups:\n    group['weight_decay'] = 0.02 * w.call",
    "if w.call == 2:\n    w.optimizer.add_param_group({'params': [nn.Parameter(torch.ones(3))]})",
    "if w.call == 3:\n    w.optimizer.state.clear()", "w.note('parts', [tuple(p.shape) for p in w.net.parameters()])",
    "w.optimizer.step()", "if w.call == 2:\n    w.optimizer.step(lambda: torch.ones(()))",
)

SETUP = (
    "m.register_forward_hook(lambda m, i, o: w.note('forward', o))",
    "m.register_forward_hook(lambda m, i, o: o * 0.5 if isinstance(o, torch.Tensor) else None)",
    "m.register_forward_hook(lambda m, i, k, o: w.note('with', len(k), o), with_kwargs=True)",
    "m.register_forward_hook(lambda m, i, o: w.note('always'), always_call=True)",
    "m.register_forward_pre_hook(lambda m, i: w.note('before', len(i), i[0].requires_grad) if i else None)",
    "m.register_forward_pre_hook(lambda m, i: (i[0] * 0.9, *i[1:]) if i else None)",
    "m.register_full_backward_hook(lambda m, i, o: w.flow('backward', *i, *o))",
    "m.register_full_backward_hook(lambda m, i, o: tuple(g if g is None else g * 0.5 for g in i))",
    "m.register_full_backward_pre_hook(lambda m, o: w.flow('backward begins', *o))",
    "m.register_full_backward_pre_hook(lambda m, o: tuple(g if g is None else g * 0.5 for g in o))",
    "p.register_hook(lambda g: w.flow('leaf', g))", "p.register_hook(lambda g: g * 0.5)",
    "p.register_hook(lambda g: g.clamp(-0.1, 0.1))",
    "p.register_post_accumulate_grad_hook(lambda p: w.flow('accumulated', p.grad))",
    "p.register_post_accumulate_grad_hook(lambda p: [p.grad.mul_(0.5), None][1])",
    "for k, q in w.net.named_parameters():\n    q.register_hook(lambda g, k=k: w.log.append(f'order {k}')) if "
    "q.requires_grad else None",
    "for k, q in w.net.named_parameters():\n    if q.requires_grad:\n"
    "        q.register_post_accumulate_grad_hook(lambda q, k=k: w.log.append(f'order {k}'))",
    "p.requires_grad_(False)", "m.requires_grad_(False)", "m.eval()", "w.holds = True",
    "nn.utils.prune.random_unstructured(m, 'weight', 0.3) if isinstance(getattr(m, 'weight', None), nn.Parameter) "
    "else None",
    "w.net.to(memory_format=torch.channels_last)", "nn.init.zeros_(p)", "nn.init.constant_(p, 0.1)",
    "p.data = p.data.transpose(0, -1).contiguous().transpose(0, -1) if p.dim() else p.data",
    "m.share_memory()",
)
OF_OPTIMIZER = (
    "w.optimizer.register_step_pre_hook(lambda o, i, k: w.note('step', len(i)))",
    "w.optimizer.register_step_post_hook(lambda o, i, k: w.note('stepped', len(o.state)))",
)
