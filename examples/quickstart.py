"""dycl in five minutes: three models, unchanged, in torch and with dycl. Run with `make demo`."""

import copy
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import dycl


class MLP(nn.Module):
    def __init__(self, width=64, depth=8):
        super().__init__()
        self.linear = nn.ModuleList([nn.Linear(width, width) for _ in range(depth)])
        self.norm = nn.ModuleList([nn.LayerNorm(width) for _ in range(depth)])

    def forward(self, x):
        for linear, norm in zip(self.linear, self.norm):
            x = norm(F.gelu(linear(x)))
        return x


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.gate = nn.Linear(channels, 1)

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(y)))


class SkippingCNN(nn.Module):
    """A residual network that decides for each image which blocks to run: an `if` on a tensor, in plain Python."""

    def __init__(self, channels=64, blocks=10):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList([Block(channels) for _ in range(blocks)])
        self.head = nn.Linear(channels, 10)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for block in self.blocks:
            if torch.sigmoid(block.gate(x.mean((2, 3)))).mean() < 0.5:
                continue
            x = block(x)
        return self.head(x.mean((2, 3)))


def bert():
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=4, hidden_size=512, num_attention_heads=8, intermediate_size=2048)
    return BertModel(config), [torch.randint(0, config.vocab_size, (1, 64)) for _ in range(3)]


def models():
    yield "MLP, 8 layers of 64", MLP(), [torch.randn(8, 64) for _ in range(3)]
    yield "CNN that skips blocks", SkippingCNN(), [torch.randn(1, 3, 64, 64) + shift for shift in (-1.0, 0.0, 1.0)]
    try:
        model, inputs = bert()
    except ImportError:
        print("(transformers is not installed: no BERT here; `make test` installs it)\n")
    else:
        yield "BERT, 4 layers of 512", model, inputs


def result(model, x):
    out = model(x)
    return out if isinstance(out, torch.Tensor) else out.last_hidden_state


def milliseconds(model, inputs, seconds):
    """Each input's turn, one figure per round of all inputs."""
    found, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 3:
        start = time.perf_counter()
        for x in inputs:
            result(model, x)
        found.append((time.perf_counter() - start) / len(inputs) * 1e3)
    return found


def shortened(text, lines=14, width=118):
    text = text.splitlines()
    shown = [line if len(line) <= width else line[: width - 3] + "..." for line in text[:lines]]
    if len(text) > lines:
        shown.append(f"... and {len(text) - lines} lines more")
    return "\n".join("    " + line for line in shown)


@torch.no_grad()
def main():
    torch.manual_seed(0)
    torch.set_num_threads(min(2, torch.get_num_threads()))
    print(f"torch {torch.__version__}, dycl {dycl.__version__}, {torch.get_num_threads()} threads\n")
    print(f"{'model':24}{'eager, ms':>12}{'dycl, ms':>12}{'faster':>10}{'largest difference':>22}")
    explained, differs = [], False
    for name, model, inputs in models():
        model.eval()
        plain = copy.deepcopy(model)
        model = dycl.accelerate(model)  # the one line that dycl needs

        worst = 0.0
        for _ in range(3):  # the first calls are recorded, the next ones run from a plan: check both
            for x in inputs:
                expected = result(plain, x)
                difference = (result(model, x) - expected).abs().max().item()
                worst = max(worst, difference)
                differs |= not difference <= 1e-4 * max(1.0, expected.abs().max().item())
        eager, fast = [], []
        for _ in range(4):  # in turns, so that a slow moment of the machine meets both
            eager += milliseconds(plain, inputs, 0.25)
            fast += milliseconds(model, inputs, 0.25)
        eager, fast = statistics.median(eager), statistics.median(fast)
        print(f"{name:24}{eager:12.3f}{fast:12.3f}{eager / fast:9.2f}x{worst:22.1e}", flush=True)
        explained.append((name, model, inputs))

    for name, model, inputs in explained:
        dycl.explain(model)  # from the first one on, steps are timed
        for x in inputs * 3:
            result(model, x)
        print(f"\ndycl.explain, {name}:\n{shortened(dycl.explain(model))}")
    if differs:
        sys.exit("quickstart: a result differs from torch's by more than rounding")


if __name__ == "__main__":
    main()
