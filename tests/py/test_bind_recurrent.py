"""nn.RNN, nn.LSTM and nn.GRU: recorded, and equal to eager for configurations drawn at random."""

import random

import dycl
import pytest
import torch
from suite import check
from torch import nn

KINDS = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}


def configuration(draw, kind):
    settings = {"num_layers": draw.randint(1, 3), "bias": draw.random() < 0.7, "bidirectional": draw.random() < 0.5,
                "batch_first": draw.random() < 0.5}
    if kind == "RNN":
        settings["nonlinearity"] = draw.choice(["tanh", "relu"])
    if draw.random() < 0.3:
        settings["dropout"] = 0.5  # in evaluation: nothing
    return settings


@pytest.mark.parametrize("kind", KINDS)
def test_layers(kind):
    draw = random.Random(len(kind))
    for _ in range(25):
        settings = configuration(draw, kind)
        inputs, width, steps, batch = draw.randint(1, 20), draw.choice([1, 5, 16, 33,
                                                                        70]), draw.randint(1, 9), draw.randint(1, 7)
        layer = KINDS[kind](inputs, width, **settings).eval().requires_grad_(False)
        batched = draw.random() < 0.8
        x = torch.randn(*((batch, steps) if settings["batch_first"] else (steps, batch)),
                        inputs) if batched else torch.randn(steps, inputs)
        runs = settings["num_layers"] * (2 if settings["bidirectional"] else 1)
        state = torch.randn(*((runs, batch) if batched else (runs,)), width)
        state = (state, state * 0.5) if kind == "LSTM" else state

        def program(x, state):
            first, last = layer(x)
            second, after = layer(x * 2, state)
            return (first, last, second, after, second + 1, (after[0] if kind == "LSTM" else after) * 2,
                    layer(second @ torch.zeros(second.shape[-1], inputs)))

        stats = check("gru_cell", program, (x, state), f"{settings} {inputs} {width} {tuple(x.shape)}")
        assert stats["torch"] == 0, stats


@pytest.mark.parametrize("kind", KINDS)
def test_large_ones_use_several_threads(kind):
    layer = KINDS[kind](40, 96, num_layers=2).eval().requires_grad_(False)
    for batch in (1, 5, 32):
        x = torch.randn(30, batch, 40)
        stats = check("gru_cell", lambda x: layer(x), (x,), f"batch {batch}")
        assert stats["torch"] == 0
    with torch.no_grad():  # weights that change are packed anew
        for p in layer.parameters():
            p.mul_(0.5)
        model, x = dycl.accelerate(layer), torch.randn(30, 3, 40)
        for i in range(4):
            layer.weight_hh_l0.add_(0.01)
            with dycl.disable():
                want = layer(x)
            got = model(x)
            torch.testing.assert_close(got[0], want[0], rtol=1e-5, atol=1e-5)


def test_weights_that_are_no_parameters():
    def program(x, w_ih, w_hh, b, h):
        weights = [w_ih * 1, (w_hh.t() + 0).t(), b, b * 2]
        return (torch.gru(x, h, weights, True, 1, 0.0, False, False, False),
                torch.rnn_tanh(x, h, (w_ih[:6], w_hh[:6]), False, 1, 0.0, False, False, False))

    stats = check("gru_cell", program, (torch.randn(4, 2, 3), torch.randn(18, 3), torch.randn(18, 6), torch.randn(18),
                                        torch.randn(1, 2, 6)), "function")
    assert stats["torch"] == 0


def test_what_goes_to_torch():
    x = torch.randn(5, 3, 4)
    lengths = torch.tensor([5, 3, 2])
    layer = nn.LSTM(4, 6).eval().requires_grad_(False)
    train = nn.GRU(4, 6, num_layers=2, dropout=0.5).train().requires_grad_(False)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths)
    check("gru_cell", lambda x: layer(packed)[0].data + x.sum(), (x,), "packed sequence")
    check("gru_cell", lambda x: train(x), (x,), "dropout")
    check("gru_cell", lambda x: nn.LSTM(4, 6, proj_size=3).requires_grad_(False)(x)[0].shape, (x,), "projection")
    check("gru_cell", lambda x: layer.double()(x.double())[0], (x,), "float64")
    layer.float()
    for f in (lambda x: layer(x[:, :, :3]), lambda x: layer(x, (x, x)), lambda x: layer(x, (torch.zeros(1, 3, 6),)),
              lambda x: layer(x[0, 0]), lambda x: layer(x[:0])):
        check("gru_cell", f, (x,), "errors")


def test_not_a_number_stays():
    for layer in (nn.RNN(4, 6, nonlinearity="relu"), nn.LSTM(4, 6), nn.GRU(4, 6)):
        layer.eval().requires_grad_(False)
        x = torch.randn(5, 2, 4)
        x[2, 1, 0] = float("nan")
        x[1, 0, 0] = float("inf")
        check("gru_cell", lambda x: layer(x), (x,), "nan")
