"""Sound and time series: dilated and spectral convolutions, CTC, forecasts."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from .program import BATCHES, Running, program, supervised


class TemporalBlock(nn.Module):
    """Convolutions that see the past only: the padding at the end is cut off."""

    def __init__(self, inside, outside, dilation):
        super().__init__()
        self.cut = 2 * dilation
        self.conv1 = weight_norm(nn.Conv1d(inside, outside, 3, padding=self.cut, dilation=dilation))
        self.conv2 = weight_norm(nn.Conv1d(outside, outside, 3, padding=self.cut, dilation=dilation))
        self.around = nn.Conv1d(inside, outside, 1) if inside != outside else None
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        y = self.drop(F.relu(self.conv1(x)[:, :, : -self.cut].contiguous()))
        y = self.drop(F.relu(self.conv2(y)[:, :, : -self.cut].contiguous()))
        return F.relu(y + (x if self.around is None else self.around(x)))


class TCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[TemporalBlock(8 if not i else 32, 32, 2**i) for i in range(4)])
        self.head = nn.Linear(32, 6)

    def forward(self, x):
        return self.head(self.blocks(x)[:, :, -1])


@program("TCN with weight norm and dropout, Adam")
def tcn(accelerate):
    model = accelerate(TCN())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    return Running(supervised(model, optimizer, F.cross_entropy, clip=0.5),
                   [(torch.randn(8, 8, 64), torch.randint(6, (8,))) for _ in range(BATCHES)], model, optimizer)


class WaveNet(nn.Module):
    def __init__(self, width=24, layers=5, levels=64):
        super().__init__()
        self.samples = nn.Embedding(levels, width)
        self.dilated = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**i) for i in range(layers))
        self.residual = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.skip = nn.ModuleList(nn.Conv1d(width, 32, 1) for _ in range(layers))
        self.out = nn.Sequential(nn.ReLU(), nn.Conv1d(32, 32, 1), nn.ReLU(), nn.Conv1d(32, levels, 1))

    def forward(self, x):
        x, skips = self.samples(x).transpose(1, 2), 0
        for dilated, residual, skip in zip(self.dilated, self.residual, self.skip):
            both = dilated(F.pad(x, (dilated.dilation[0], 0)))
            value, gate = both.chunk(2, 1)
            y = torch.tanh(value) * torch.sigmoid(gate)
            skips = skips + skip(y)
            x = x + residual(y)
        return self.out(skips)


@program("WaveNet: gated dilated convolutions, a class for each sample")
def wavenet(accelerate):
    model = accelerate(WaveNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[:, :-1]), x[:, 1:])
        loss.backward()
        optimizer.step()
        return loss.item()

    return Running(step, [(torch.randint(64, (2, 161)),) for _ in range(BATCHES)], model, optimizer)


class Speech(nn.Module):
    """Two convolutions over a spectrogram, a GRU, letters."""

    def __init__(self, letters=28):
        super().__init__()
        self.convs = nn.Sequential(nn.Conv2d(1, 16, 3, (2, 2), 1), nn.Hardtanh(0, 20, inplace=True),
                                   nn.Conv2d(16, 16, 3, (2, 1), 1), nn.Hardtanh(0, 20, inplace=True))
        self.gru, self.head = nn.GRU(128, 64, bidirectional=True), nn.Linear(128, letters)

    def forward(self, x):
        x = self.convs(x).flatten(1, 2).permute(2, 0, 1)
        return self.head(self.gru(x)[0]).log_softmax(-1)


@program("speech: convolutions, bidirectional GRU, CTC loss, SGD with Nesterov momentum")
def speech_ctc(accelerate):
    model = accelerate(Speech())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
    criterion = nn.CTCLoss(zero_infinity=True)

    def step(x, letters, sizes):
        optimizer.zero_grad()
        out = model(x)
        loss = criterion(out, letters, torch.full((len(x),), out.size(0)), sizes)
        if not torch.isfinite(loss):
            return float("nan")
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 100)
        optimizer.step()
        return loss.item()

    batches = [(torch.randn(4, 1, 32, 64), torch.randint(1, 28, (4, 10)), torch.randint(5, 11, (4,)))
               for _ in range(BATCHES)]
    return Running(step, batches, model, optimizer)


class Spectrogram(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(128))
        self.convs = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
                                   nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
                                   nn.AdaptiveMaxPool2d((2, 2)), nn.Flatten())
        self.head = nn.Linear(128, 12)

    def forward(self, wave):
        power = torch.stft(wave, 128, 64, window=self.window, return_complex=True).abs().pow(2)
        return self.head(self.convs(torch.log1p(power)[:, None]))


@program("keyword spotting: STFT in the model, convolutions, bands that are masked")
def spectrogram(accelerate):
    model = accelerate(Spectrogram())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=100_000)
    return Running(supervised(model, optimizer, F.cross_entropy, scheduler),
                   [(torch.randn(6, 2048), torch.randint(12, (6,))) for _ in range(BATCHES)], model, optimizer,
                   scheduler)


class NBeatsBlock(nn.Module):
    def __init__(self, past, future, width=64):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(past, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.back, self.fore = nn.Linear(width, past), nn.Linear(width, future)

    def forward(self, x):
        h = self.layers(x)
        return self.back(h), self.fore(h)


class NBeats(nn.Module):
    def __init__(self, past=48, future=12):
        super().__init__()
        self.blocks, self.future = nn.ModuleList(NBeatsBlock(past, future) for _ in range(6)), future

    def forward(self, x):
        forecast = torch.zeros(len(x), self.future)
        for block in self.blocks:
            back, fore = block(x)
            x, forecast = x - back, forecast + fore
        return forecast


def smape(found, y):
    return 2 * ((found - y).abs() / (found.abs() + y.abs() + 1e-8).detach()).mean()


@program("N-BEATS, six blocks, symmetric percentage error, Adam")
def nbeats(accelerate):
    model = accelerate(NBeats())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    waves = [torch.sin(torch.rand(32, 1) * 6 + torch.arange(60) * (0.1 + torch.rand(32, 1))) + 3
             for _ in range(BATCHES)]
    return Running(supervised(model, optimizer, smape, clip=1.0), [(w[:, :48], w[:, 48:]) for w in waves], model,
                   optimizer)


class ProbSparse(nn.Module):
    """Informer's attention: only the queries that stand out look at all keys, the others get the mean."""

    def __init__(self, width, heads=4, kept=8):
        super().__init__()
        self.qkv, self.out, self.heads, self.kept = nn.Linear(width, 3 * width), nn.Linear(width, width), heads, kept

    def forward(self, x):
        b, n, width = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        sample = torch.randint(n, (self.kept,))
        scores = q @ k[:, :, sample].transpose(-2, -1)
        top = (scores.max(-1)[0] - scores.mean(-1)).topk(self.kept, sorted=False)[1]
        index = top[..., None].expand(-1, -1, -1, q.shape[-1])
        weights = torch.softmax(q.gather(2, index) @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, -1)
        context = v.mean(2, keepdim=True).expand(-1, -1, n, -1).scatter(2, index, weights @ v)
        return self.out(context.transpose(1, 2).reshape(b, n, width))


class Informer(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = nn.Conv1d(7, width, 3, padding=1, padding_mode="circular")
        self.attentions, self.norms = nn.ModuleList(), nn.ModuleList()
        self.distill = nn.Conv1d(width, width, 3, padding=1)
        for _ in range(2):
            self.attentions.append(ProbSparse(width))
            self.norms.append(nn.LayerNorm(width))
        self.head = nn.Linear(width, 7)

    def forward(self, x):
        x = self.embed(x.transpose(1, 2)).transpose(1, 2)
        for attention, norm in zip(self.attentions, self.norms):
            x = norm(x + attention(x))
            x = F.max_pool1d(F.elu(self.distill(x.transpose(1, 2))), 3, 2, 1).transpose(1, 2)
        return self.head(x)


@program("Informer-like: sparse attention by top queries, distilled lengths")
def informer(accelerate):
    model = accelerate(Informer())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    return Running(supervised(model, optimizer, F.mse_loss),
                   [(torch.randn(4, 64, 7), torch.randn(4, 16, 7)) for _ in range(BATCHES)], model, optimizer)
