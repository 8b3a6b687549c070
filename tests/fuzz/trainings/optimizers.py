"""Optimizers with drawn options and groups, and schedules of their rates."""

from .losses import joined

OPTIMIZERS = {
    "SGD": (0.02, ["momentum=0.9", "momentum=0.5, nesterov=True", "momentum=0.9, dampening=0.1", "weight_decay=0.01",
                   "maximize=True", "foreach=True", "fused=True"]),
    "Adam": (0.01, ["amsgrad=True", "eps=1e-4", "weight_decay=0.01", "betas=(0.8, 0.95)", "foreach=True", "fused=True",
                    "maximize=True", "decoupled_weight_decay=True"]),
    "AdamW": (0.01, ["amsgrad=True", "eps=1e-4", "weight_decay=0.1", "foreach=True", "fused=True", "capturable=False"]),
    "Adamax": (0.01, ["weight_decay=0.01", "foreach=True", "eps=1e-4"]),
    "NAdam": (0.01, ["weight_decay=0.01", "decoupled_weight_decay=True", "momentum_decay=0.01", "foreach=True"]),
    "RAdam": (0.01, ["weight_decay=0.01", "decoupled_weight_decay=True", "foreach=True"]),
    "Adagrad": (0.02, ["lr_decay=0.1", "weight_decay=0.01", "initial_accumulator_value=0.1", "foreach=True",
                       "fused=True"]),
    "Adadelta": (0.5, ["rho=0.8", "weight_decay=0.01", "foreach=True", "eps=1e-3"]),
    "RMSprop": (0.005, ["centered=True", "momentum=0.5", "alpha=0.9", "weight_decay=0.01", "foreach=True", "eps=1e-3"]),
    "Rprop": (0.005, ["etas=(0.6, 1.3)", "step_sizes=(1e-5, 1.0)", "foreach=True"]),
    "ASGD": (0.01, ["lambd=1e-3", "alpha=0.6", "t0=2", "weight_decay=0.01", "foreach=True"]),
    "Adafactor": (0.01, ["weight_decay=0.01", "beta2_decay=-0.5", "foreach=True"]),
}
GROUPS = ("net.parameters()", "net.parameters()", "list(net.parameters())", "net.named_parameters()",
          "[p for p in net.parameters() if p.requires_grad]",
          "[{'params': [p for p in net.parameters() if p.dim() > 1]}, "
          "{'params': [p for p in net.parameters() if p.dim() <= 1], "
          "'lr': 0.003, 'weight_decay': 0.0}]",
          "[{'params': [p], 'lr': 0.005 + 0.001 * i} for i, p in enumerate(net.parameters())]",
          "list(net.parameters())[::2]")


def optimizer(d):
    if any("sparse=True" in m for m in d.modules) and d.chance(0.6):
        return d.pick("torch.optim.SGD(net.parameters(), lr=0.05)", "torch.optim.Adagrad(net.parameters(), lr=0.02)",
                      "torch.optim.SparseAdam([p for p in net.parameters() if p.dim() == 2][:1], lr=0.01)")
    if d.chance(0.04):
        more = d.pick("", ", weight_decay=0.1", ", momentum=0.8, nesterov=False")
        return f"torch.optim.Muon([p for p in net.parameters() if p.dim() == 2], lr=0.01{more})"
    if d.chance(0.03):
        search = d.pick("", ", line_search_fn='strong_wolfe'")
        return f"torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=3{search})"
    name = d.rng.choice(list(OPTIMIZERS) + ["SGD", "SGD", "Adam", "AdamW", "AdamW"])
    rate, options = OPTIMIZERS[name]
    options = [o for o in options if d.chance(0.25)]
    if len([o for o in options if o in ("foreach=True", "fused=True")]) > 1:
        options.remove("fused=True")
    keys = [o.split("=")[0] for o in options]
    options = [o for i, o in enumerate(options) if o.split("=")[0] not in keys[:i]]
    rate = f"torch.tensor({rate})" if d.chance(0.04) and name in ("Adam", "AdamW", "SGD") else rate
    return f"torch.optim.{name}({joined(d.rng.choice(GROUPS), f'lr={rate}', *options)})"


SCHEDULERS = (
    "StepLR({o}, 2, gamma=0.5)", "MultiStepLR({o}, [1, 3], gamma=0.3)", "ExponentialLR({o}, 0.9)",
    "ConstantLR({o}, 0.5, 2)",
    "CosineAnnealingLR({o}, 4)", "LinearLR({o}, 0.3, total_iters=3)", "LambdaLR({o}, lambda k: 1 / (1 + k))",
    "MultiplicativeLR({o}, lambda k: 0.9)", "PolynomialLR({o}, 5, power=2.0)", "CosineAnnealingWarmRestarts({o}, 2)",
    "OneCycleLR({o}, 0.02, total_steps=20)", "CyclicLR({o}, 0.001, 0.01, step_size_up=2, cycle_momentum=False)",
    "SequentialLR({o}, [lr_scheduler.ConstantLR({o}, 0.5), lr_scheduler.ExponentialLR({o}, 0.9)], [2])",
    "ChainedScheduler([lr_scheduler.ConstantLR({o}, 0.5), lr_scheduler.ExponentialLR({o}, 0.9)])",
    "ReduceLROnPlateau({o}, patience=0)",
)


def scheduler(d):
    return f"lr_scheduler.{d.rng.choice(SCHEDULERS)}".replace("{o}", "w.optimizer") if d.chance(0.35) else "None"
