"""Whole training programs, as torch's examples, transformers, Lightning and torch.distributed have them, for
test_train_frameworks.py. A program is given `run`: `run(model)` is what its user accelerates, `run.note` keeps what the
program saw.

    python [-m dycl] train_programs.py GROUP FILE way...     saves {(program, way): notes} of each program of the group

ways: eager; noise0, noise1...: eager from parameters that were moved by a rounding; model: dycl.accelerate of models
and optimizers; all: dycl.accelerate_all. Under torchrun each process saves FILE.rank."""

import copy
import csv
import io
import os
import sys
import tempfile
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import swa_utils
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

GROUPS = {"torch": [], "transformers": [], "lightning": [], "distributed": []}
FULL = os.environ.get("DYCL_TEST_FULL") == "1"


def program(group, full=False):
    def register(function):
        if FULL or not full:
            GROUPS[group].append(function)
        return function

    return register


class Run:
    def __init__(self, way):
        self.way, self.notes, self.recorded = way, [], 0
        self.models = []
        self.generator = torch.Generator().manual_seed(int(way[5:])) if way.startswith("noise") else None

    def __call__(self, target):
        if self.generator and isinstance(target, nn.Module):
            for p in target.parameters():
                p.data.mul_(1 + 2 ** -23 * (torch.randint(0, 3, p.shape, generator=self.generator) - 1))
        if isinstance(target, nn.Module):
            self.models.append(target)
        if self.way != "model":
            return target
        import dycl

        return dycl.accelerate(target)

    def note(self, *values):
        self.notes.append(copy.deepcopy([v.detach() if isinstance(v, torch.Tensor) else v for v in values]))

    def state(self, model, optimizer=None):
        self.note({k: v.detach() for k, v in model.state_dict().items()}, [p.grad for p in model.parameters()],
                  [(p.requires_grad, p._version) for p in model.parameters()],
                  optimizer.state_dict() if optimizer is not None else None, torch.get_rng_state())


def images(count=32, channels=3, size=16):
    generator = torch.Generator().manual_seed(7)
    return TensorDataset(torch.randn(count, channels, size, size, generator=generator),
                         torch.randint(0, 10, (count,), generator=generator))


class Block(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b)
        self.conv2, self.bn2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
        self.down, self.relu = nn.Conv2d(a, b, 1, 2), nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += self.down(x)
        return self.relu(out)


def resnet():
    return nn.Sequential(Block(3, 6), Block(6, 8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))


class Deep(nn.Module):
    def __init__(self, checkpoints=False):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 8),
                                                  nn.LayerNorm(8)) for _ in range(3))
        self.head, self.checkpoints = nn.Linear(8, 3), checkpoints

    def forward(self, x):
        x = x + self.layers[0](x)
        for layer in self.layers[1:]:
            x = x + (checkpoint(layer, x, use_reentrant=False) if self.checkpoints else layer(x))
        return self.head(x)


# ---- torch


@program("torch")
def mnist(run):
    """Workers that load, evaluation between epochs, a scheduler."""
    model = run(nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.ReLU(), nn.MaxPool2d(2),
                              nn.Dropout(0.25), nn.Flatten(), nn.Linear(288, 16), nn.ReLU(), nn.Dropout(0.5),
                              nn.Linear(16, 10), nn.LogSoftmax(1)))
    optimizer = run(torch.optim.Adadelta(model.parameters(), lr=1.0))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
    for epoch in range(2):
        model.train()
        for x, y in DataLoader(images(24, 1), batch_size=8, shuffle=True, num_workers=epoch):
            optimizer.zero_grad()
            loss = F.nll_loss(model(x), y)
            loss.backward()
            optimizer.step()
            run.note(loss.item())
        model.eval()
        with torch.no_grad():
            for x, y in DataLoader(images(16, 1), batch_size=8):
                out = model(x)
                right = out.argmax(1, keepdim=True).eq(y.view(-1, 1)).sum()
                run.note(F.nll_loss(out, y, reduction="sum").item(), right.item())
        scheduler.step()
    run.state(model, optimizer)


@program("torch")
def dcgan(run):
    generator = run(nn.Sequential(nn.ConvTranspose2d(6, 8, 4, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
                                  nn.ConvTranspose2d(8, 3, 4, 2, 1), nn.Tanh()))
    judge = run(nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(8, 8, 3, 1, 1, bias=False),
                              nn.BatchNorm2d(8), nn.LeakyReLU(0.2, True), nn.Conv2d(8, 1, 4), nn.Sigmoid()))
    optimizers = [run(torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999))) for m in (judge, generator)]
    for _ in range(3):
        judge.zero_grad()
        real, label = judge(torch.randn(4, 3, 8, 8)).view(-1), torch.ones(4)
        F.binary_cross_entropy(real, label).backward()
        fake = generator(torch.randn(4, 6, 1, 1))
        F.binary_cross_entropy(judge(fake.detach()).view(-1), label.fill_(0)).backward()
        optimizers[0].step()
        generator.zero_grad()
        loss = F.binary_cross_entropy(judge(fake).view(-1), label.fill_(1))
        loss.backward()
        optimizers[1].step()
        run.note(real, fake, loss.item())
    run.state(generator, optimizers[1])
    run.state(judge, optimizers[0])


@program("torch")
def words(run):
    embed, rnn, out = nn.Embedding(20, 8), nn.LSTM(8, 8, 2, dropout=0.2), nn.Linear(8, 20)
    out.weight = embed.weight
    model = nn.ModuleDict({"embed": embed, "rnn": rnn, "out": out})

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = model

        def forward(self, x, state):
            h, state = self.parts["rnn"](self.parts["embed"](x), state)
            return F.log_softmax(self.parts["out"](h).view(-1, 20), 1), state

    model = run(Words())
    text, state = torch.randint(0, 20, (25, 4)), (torch.zeros(2, 4, 8), torch.zeros(2, 4, 8))
    for i in range(0, 24, 6):
        state = tuple(s.detach() for s in state)
        model.zero_grad()
        log, state = model(text[i:i + 6], state)
        loss = F.nll_loss(log, text[i + 1:i + 7].reshape(-1))
        loss.backward()
        run.note(loss.item(), torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25))
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-2.0)
    run.state(model)


@program("torch")
def time_sequence(run):
    """Cells in a loop, LBFGS with a closure."""
    class Sequence(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells, self.out = nn.ModuleList([nn.LSTMCell(1, 9), nn.LSTMCell(9, 9)]), nn.Linear(9, 1)

        def forward(self, x):
            (h, c, g, d), outs = torch.zeros(4, 4, 9), []
            for part in x.split(1, 1):
                h, c = self.cells[0](part, (h, c))
                g, d = self.cells[1](h, (g, d))
                outs.append(self.out(g))
            return torch.cat(outs, 1)

    model, x = run(Sequence()), torch.sin(torch.arange(12.0) / 3 + torch.randn(4, 1))
    optimizer = run(torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3))

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x[:, :-1]), x[:, 1:])
        loss.backward()
        run.note(loss.item())
        return loss

    for _ in range(2):
        optimizer.step(closure)
    run.state(model)


@program("torch")
def vision(run):
    """autocast in every second step, mixed images, warm-up, clipped and accumulated gradients, averages of weights."""
    model = run(resnet())
    optimizer = run(torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-2))
    ema = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True)
    schedule = torch.optim.lr_scheduler
    scheduler = schedule.SequentialLR(optimizer, [schedule.LinearLR(optimizer, 0.1, total_iters=2),
                                                  schedule.CosineAnnealingLR(optimizer, 6)], [2])
    for i, (x, y) in enumerate(DataLoader(images(), batch_size=8, shuffle=True)):
        x, y = x.roll(1, 0).mul_(0.3).add_(x, alpha=0.7), F.one_hot(y, 10).float()
        with torch.autocast("cpu", torch.bfloat16, enabled=i == 3):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1) / 2
        loss.backward()
        if i % 2:
            run.note(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
            optimizer.step()
            optimizer.zero_grad()
            ema.update_parameters(model)
            scheduler.step()
        run.note(loss.item() if i < 3 else 0, scheduler.get_last_lr())
    swa_utils.update_bn(DataLoader(images(), 16), ema)
    ema.eval()
    run.note(ema(images()[:4][0]))
    run.state(model, optimizer)


@program("torch")
def hooks(run):
    model = run(Deep())
    optimizer, seen = run(torch.optim.Adam(model.parameters(), lr=1e-2)), []
    for name, p in model.named_parameters():
        p.register_hook(lambda g, name=name: seen.append((name, g.norm())) or g * 0.5)
        p.register_post_accumulate_grad_hook(lambda p, name=name: seen.append((name, p.grad.norm())))
    for i in range(4):
        handles = [m.register_full_backward_hook(lambda m, a, b: seen.append(b[0].norm())) for m in model.layers] \
            if i == 2 else []
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        [h.remove() for h in handles]
        run.note(list(seen))
        seen.clear()
    run.state(model, optimizer)


@program("torch")
def resumed(run):
    def make():
        torch.manual_seed(1)
        model = run(Deep(checkpoints=True))
        optimizer = run(torch.optim.AdamW(model.parameters(), amsgrad=True))
        return model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=20)

    def steps(model, optimizer, scheduler):
        for i in range(3):
            optimizer.zero_grad(set_to_none=i % 2 == 0)
            loss = F.cross_entropy(model(torch.randn(6, 8)), torch.randint(0, 3, (6,)))
            loss.backward()
            optimizer.step()
            scheduler.step()
            run.note(loss.item())

    parts, file = make(), io.BytesIO()
    steps(*parts)
    torch.save([*(part.state_dict() for part in parts), torch.get_rng_state()], file)
    other = copy.deepcopy(parts)
    steps(*parts)
    file.seek(0)
    *states, random = torch.load(file, weights_only=False)
    parts = make()
    for part, state in zip(parts, states):
        part.load_state_dict(state)
    torch.set_rng_state(random)
    steps(*parts)
    steps(*other)
    run.state(*parts[:2])
    run.state(*other[:2])


# ---- transformers


def tokens(count=12):
    generator = torch.Generator().manual_seed(3)
    return [{"input_ids": row, "labels": row}
            for row in torch.randint(1, 40, (count, 8), generator=generator).tolist()]


def trainer(run, model, rows=tokens, **options):
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Seen(TrainerCallback):
        def __getattribute__(self, name):
            if not name.startswith("on_"):
                return super().__getattribute__(name)
            return lambda args, state, control, **kw: run.note(name, state.global_step, sorted(kw))

    def history(t):
        return [{k: v for k, v in h.items() if "runtime" not in k and "second" not in k} for h in t.state.log_history]

    with tempfile.TemporaryDirectory() as place:
        arguments = TrainingArguments(
            output_dir=place, per_device_train_batch_size=4, num_train_epochs=2, logging_steps=1, report_to=[],
            use_cpu=True, seed=3, learning_rate=1e-3, disable_tqdm=True, save_strategy="steps", save_steps=2,
            **{"eval_strategy": "epoch", **options})
        first = Trainer(model=run(model), args=arguments, train_dataset=rows(), eval_dataset=rows(4),
                        callbacks=[Seen()])
        run.note(first.train().training_loss, history(first), sorted(os.listdir(place)))
        run.note(torch.as_tensor(first.predict(rows(3)).predictions))
        run.state(model, first.optimizer.optimizer)
        again = Trainer(model=run(copy.deepcopy(model)), args=arguments, train_dataset=rows(), eval_dataset=rows(4))
        run.note(again.train(resume_from_checkpoint=f"{place}/checkpoint-2").training_loss, history(again))
        run.state(again.model)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=8, n_layer=2, n_head=2, n_positions=16, use_cache=False))


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(vocab_size=40, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                                        num_key_value_heads=1, intermediate_size=16, use_cache=False))


@program("transformers")
def trainer_gpt2(run):
    trainer(run, gpt2(), gradient_accumulation_steps=1, max_grad_norm=0.5, weight_decay=0.1)


@program("transformers", full=True)
def trainer_checkpointing(run):
    trainer(run, gpt2(), gradient_checkpointing=True)


@program("transformers", full=True)
def trainer_llama(run):
    trainer(run, llama(), label_smoothing_factor=0.1, lr_scheduler_type="cosine", warmup_steps=1)


@program("transformers")
def lora(run):
    import peft

    model = run(peft.get_peft_model(gpt2(), peft.LoraConfig(r=2, lora_dropout=0.1, target_modules=["c_attn"])))
    optimizer = run(torch.optim.AdamW(model.parameters(), lr=1e-2))
    for _ in range(3):
        ids = torch.randint(1, 40, (3, 8))
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.note(loss.item())
    model.eval()
    with model.disable_adapter():
        run.note(model(input_ids=ids).logits)
    merged = model.merge_and_unload()
    run.note(merged(input_ids=ids).logits)
    run.state(merged)


@program("transformers")
def accelerator(run):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    engine, model = Accelerator(cpu=True, gradient_accumulation_steps=2), run(gpt2())
    optimizer = run(torch.optim.AdamW(model.parameters(), lr=1e-3))
    loader = DataLoader(torch.randint(1, 40, (12, 8)), batch_size=3)
    model, optimizer, loader = engine.prepare(model, optimizer, loader)
    for ids in loader:
        with engine.accumulate(model):
            loss = model(input_ids=ids, labels=ids).loss
            engine.backward(loss)
            if engine.sync_gradients:
                run.note(engine.clip_grad_norm_(model.parameters(), 1.0))
            optimizer.step()
            optimizer.zero_grad()
        run.note(loss.item(), engine.gather_for_metrics(ids))
    run.state(engine.unwrap_model(model), optimizer.optimizer)


# ---- Lightning


def lightning_model(run, manual):
    import pytorch_lightning as lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.automatic_optimization = resnet(), not manual

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, i):
            loss = F.cross_entropy(self(batch[0]), batch[1])
            self.log("loss", loss, on_step=True, on_epoch=True)
            run.note(loss.item())
            if manual:
                optimizer = self.optimizers()
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()
            return loss

        def validation_step(self, batch, i):
            self.log("value", F.cross_entropy(self(batch[0]), batch[1]))

        def configure_optimizers(self):
            optimizer = run(torch.optim.AdamW(self.parameters(), lr=1e-3))
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    return run(Model())


def fit(run, manual=False, **options):
    import logging

    import pytorch_lightning as lightning
    from pytorch_lightning.callbacks import Callback, EarlyStopping, LearningRateMonitor, ModelCheckpoint
    from pytorch_lightning.loggers import CSVLogger

    class Seen(Callback):
        def __init__(self):
            for name in dir(Callback):
                if name.startswith("on_") and not name.endswith(("checkpoint", "exception")):
                    setattr(self, name, lambda *arguments, name=name: run.note(name))

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    lightning.seed_everything(5)
    with tempfile.TemporaryDirectory() as place:
        model, keep = lightning_model(run, manual), ModelCheckpoint(place, save_last=True)
        callbacks = [Seen(), keep, LearningRateMonitor(), EarlyStopping("value", patience=5)]
        common = dict(accelerator="cpu", devices=1, enable_progress_bar=False, enable_model_summary=False,
                      default_root_dir=place, log_every_n_steps=1, **options)
        first = lightning.Trainer(max_epochs=2, callbacks=callbacks, logger=CSVLogger(place, version=0), **common)
        loaders = DataLoader(images(), 8, shuffle=True), DataLoader(images(16), 8)
        first.fit(model, *loaders)
        run.note(dict(first.callback_metrics), first.global_step)
        with open(f"{place}/lightning_logs/version_0/metrics.csv") as file:
            run.note([{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)])
        run.state(model)
        again = lightning_model(run, manual)
        later = lightning.Trainer(max_epochs=3, logger=False, enable_checkpointing=False, **common)
        later.fit(again, *loaders, ckpt_path=f"{place}/last.ckpt", weights_only=False)
        run.state(again)


@program("lightning")
def lightning_fit(run):
    fit(run, accumulate_grad_batches=2, gradient_clip_val=0.5)


@program("lightning", full=True)
def lightning_manual(run):
    fit(run, manual=True)


# ---- torch.distributed


def parallel(run, module, outer=False, hook=None, pause=0, make=None, **options):
    """DistributedDataParallel around what was accelerated, or accelerated itself."""
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    model = run(DistributedDataParallel(module, **options)) if outer else \
        DistributedDataParallel(run(module), **options)
    run.models.append(model)
    if hook:
        model.register_comm_hook(*hook(model))
    optimizer = run(torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9))
    generator = torch.Generator().manual_seed(distributed.get_rank())
    for i in range(5):
        x = make(generator) if make else torch.randn(4, 8, generator=generator)
        if pause and i % pause:
            with model.no_sync():
                model(x).square().mean().backward()
            continue
        loss = model(x).square().mean()
        loss.backward()
        run.note(loss.item(), torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0),
                 [p.grad for p in model.parameters()])
        optimizer.step()
        optimizer.zero_grad()
    run.state(model, optimizer)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.sides, self.out, self.calls = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)]), nn.Linear(8, 3), 0

    def forward(self, x):
        self.calls += 1
        return self.out(torch.tanh(self.sides[self.calls % 2](x)))


def noted_buckets(run):
    from torch import distributed

    def hook(model):
        names = {p: name for name, p in model.named_parameters()}

        def reduce(state, bucket):
            run.note([names[p] for p in bucket.parameters()])
            future = distributed.all_reduce(bucket.buffer().div_(2), async_op=True).get_future()
            return future.then(lambda f: f.value()[0])

        return None, reduce

    return hook


def power_sgd(model):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

    return power.PowerSGDState(None, 1, start_powerSGD_iter=2, min_compression_rate=1), power.powerSGD_hook


@program("distributed")
def ddp(run):
    parallel(run, Deep())
    parallel(run, resnet(), outer=True, static_graph=True, gradient_as_bucket_view=True,
             make=lambda g: torch.randn(4, 3, 16, 16, generator=g))


@program("distributed")
def ddp_unused(run):
    parallel(run, Branches(), find_unused_parameters=True)
    parallel(run, Branches(), outer=True, find_unused_parameters=True, gradient_as_bucket_view=True)


@program("distributed")
def ddp_hooks(run):
    parallel(run, Deep(), hook=noted_buckets(run), bucket_cap_mb=0.001)
    parallel(run, Deep(), hook=power_sgd)


@program("distributed")
def ddp_no_sync(run):
    parallel(run, Deep(checkpoints=True), pause=2)


@program("distributed")
def fsdp(run):
    from torch.distributed.fsdp import fully_shard

    model = run(Deep())
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = run(torch.optim.AdamW(model.parameters(), lr=1e-2))
    for _ in range(3):
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.note(loss.item())
    run.note({k: v.full_tensor() for k, v in model.state_dict().items()})


# ---- the run of a group


def recorded(models):
    """Operators that regions of these, or of their parts, recorded."""
    import dycl

    total = 0
    for m in {part for model in models for part in model.modules()}:
        try:
            total += dycl.stats(m)["recorded"]
        except TypeError:
            pass
    return total


def once(function, way):
    import random

    import numpy

    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    run = Run(way)
    if way == "all":
        import dycl

        with dycl.accelerate_all():
            function(run)
    else:
        function(run)
    return {"notes": run.notes, "random": (torch.get_rng_state(), random.random(), numpy.random.rand()),
            "recorded": recorded(run.models) if "dycl._core" in sys.modules else 0}


def main(group, path, *ways):
    import logging

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if group == "transformers":
        import transformers

        transformers.utils.logging.set_verbosity_error()
    if group == "distributed":
        torch.distributed.init_process_group("gloo")
        path = f"{path}.{torch.distributed.get_rank()}"
        logging.getLogger("torch.nn.parallel.distributed").setLevel(logging.ERROR)
    torch.save({(f.__name__, way): once(f, way) for f in GROUPS[group] for way in ways}, path)
    if group == "distributed":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
