"""Losses: a function of the Draw makes the target t an input and answers (the criterion's constructor or None, the text
of the loss of y)."""

REDUCED = ("", "", "", "reduction='sum'", "reduction='none'")


def joined(*options):
    return ", ".join(o for o in options if o)


def loss(d):
    """(constructor of the criterion or None, text of the loss of y). The target t is made an input."""
    rows = len(d.shape) == 2
    kinds = [elementwise] * 4 + [shares, by_hand] + [classes] * (5 if rows and d.shape[1] > 1 else 1 if len(d.shape) > 2
                                                                 and d.shape[1] > 1 else 0)
    if rows:
        kinds += [pairs, labels]
    if d.kind == "sequence" and d.shape[2] > 2:
        kinds += [tokens, ctc]
    return d.rng.choice(kinds)(d)


def whole(d, criterion, call, reduction):
    scale = d.pick("", "", " * 0.5")
    if "none" in reduction:
        return criterion, f"{call}.{d.pick('mean()', 'sum() * 0.1', 'flatten(1).sum(1).mean()')}{scale}" \
            if call.startswith("w.criterion(y, t)") else f"{call}.mean(){scale}"
    return criterion, f"{call}{' * 0.05' if 'sum' in reduction else scale}"


def elementwise(d):
    r = d.rng.choice(REDUCED)
    d.target(d.shape[1:], d.dtype, "normal")
    name = d.rng.choice(["MSELoss()", "L1Loss()", "SmoothL1Loss()", "SmoothL1Loss(beta=0.3)", "HuberLoss()",
                         "HuberLoss("
                         "delta=0.5)", "PoissonNLLLoss(full=True)", "PoissonNLLLoss()", "SoftMarginLoss()",
                         "GaussianNLLLoss()",
                         "HingeEmbeddingLoss()"])
    if r:
        name = name.replace(")", f", {r})").replace("(, ", "(")
    target = {"PoissonNLLLoss": "t.abs().round()", "SoftMarginLoss": "t.sign()", "HingeEmbeddingLoss": "t.sign()"}
    target = target.get(name.split("(")[0], "t")
    more = d.pick(", torch.ones_like(y) * 0.5", ", y.square() + 0.1") if name.startswith("Gaussian") else ""
    return whole(d, f"nn.{name}", f"w.criterion(y, {target}{more})", r)


def shares(d):
    r = d.rng.choice(REDUCED)
    d.target(d.shape[1:], d.dtype, "normal")
    name, target = d.rng.choice([("BCEWithLogitsLoss", "t.sigmoid()"), ("BCEWithLogitsLoss", "(t > 0).to(y.dtype)"),
                                 ("BCELoss", "(t > 0).to(y.dtype)"), ("KLDivLoss", "t.softmax(1)"),
                                 ("KLDivLoss", "t.log_softmax(1)")])
    options = "pos_weight=torch.tensor(2.0)" if name == "BCEWithLogitsLoss" and d.chance(0.3) else ""
    options = "log_target=True" if "log_softmax" in target else options
    y = {"BCELoss": "y.sigmoid()", "KLDivLoss": "y.log_softmax(1)"}.get(name, "y")
    return whole(d, f"nn.{name}({joined(options, r)})", f"w.criterion({y}, {target})", r)


def by_hand(d):
    d.target(d.shape[1:], d.dtype, "normal")
    return None, d.pick("(y - t).square().mean()", "((y - t).abs() + 1).log().mean()", "(y * t).mean() + y.var() * 0.1",
                        "y.flatten(1).logsumexp(1).mean() - y.mean()",
                        "-(y.log_softmax(1) * t.softmax(1)).sum(1).mean()",
                        "(y - t).norm() * 0.1", "1 - F.cosine_similarity(y.flatten(1), t.flatten(1)).mean()",
                        "torch.dist(y, t) * 0.1", "F.mse_loss(y, t) + 0.01 * sum(p.square().sum() for p in "
                        "w.net.parameters())")


def classes(d):
    c, r = d.shape[1], d.rng.choice(REDUCED)
    d.target(d.shape[2:], "torch.int64", f"index {c}")
    weight = f"weight=torch.linspace(0.5, 1.5, {c}).to({d.dtype})" if d.chance(0.25) else ""
    more = d.pick("", "", "ignore_index=1", "label_smoothing=0.1")
    name, y = d.pick(("CrossEntropyLoss", "y"), ("CrossEntropyLoss", "y"), ("NLLLoss", "y.log_softmax(1)"),
                     ("MultiMarginLoss", "y"))
    if name == "MultiMarginLoss" and len(d.shape) > 2:
        name = "CrossEntropyLoss"
    if name == "MultiMarginLoss":
        weight, more = "", d.pick("", "margin=0.5", "p=2")
    more = "" if name == "NLLLoss" and "smoothing" in more else more
    if name == "CrossEntropyLoss" and d.chance(0.1) and len(d.shape) == 2:
        return whole(d, f"nn.{name}({r})", f"w.criterion(y, F.one_hot(t, {c}).to(y.dtype) * 0.9)", r)
    return whole(d, f"nn.{name}({joined(weight, more, r)})", f"w.criterion({y}, t)", r)


def tokens(d):
    c = d.shape[2]
    d.target(d.shape[1:2], "torch.int64", f"index {c}")
    return d.pick("nn.CrossEntropyLoss()", "nn.CrossEntropyLoss(ignore_index=0)"), d.pick(
        "w.criterion(y.flatten(0, 1), t.flatten())", "w.criterion(y.transpose(1, 2), t)",
        f"w.criterion(y.reshape(-1, {c}), t.view(-1))")


def ctc(d):
    time, c = d.shape[1:]
    d.target((), "torch.int64", f"index {c - 1}")
    lengths = f"torch.full((len(y),), {time}), torch.ones(len(y), dtype=torch.int64)"
    return (f"nn.CTCLoss({d.pick('', 'zero_infinity=True')})",
            f"w.criterion(y.log_softmax(2).transpose(0, 1), t[:, None] + 1, {lengths})")


def pairs(d):
    r = d.rng.choice(REDUCED)
    d.target(d.shape[1:], d.dtype, "normal")
    return whole(d, *d.pick(
        (f"nn.CosineEmbeddingLoss({joined('margin=0.2', r)})", "w.criterion(y, t, t[:, 0].sign())"),
        (f"nn.MarginRankingLoss({joined('margin=0.1', r)})", "w.criterion(y, t, t.sign())"),
        (f"nn.TripletMarginLoss({joined(d.pick('', 'p=1', 'swap=True', 'margin=2.0'), r)})",
         "w.criterion(y, t, t.flip(0))"),
        (f"nn.TripletMarginWithDistanceLoss({joined('distance_function=nn.PairwiseDistance()', r)})",
         "w.criterion(y, t, t.roll(1, 1))")), r)


def labels(d):
    r = d.rng.choice(REDUCED)
    if d.chance(0.5):
        d.target(d.shape[1:], d.dtype, "normal")
        return whole(d, f"nn.MultiLabelSoftMarginLoss({r})", "w.criterion(y, (t > 0).to(y.dtype))", r)
    d.target(d.shape[1:], "torch.int64", f"index {d.shape[1]}")
    return whole(d, f"nn.MultiLabelMarginLoss({r})", "w.criterion(y, t)", r)
