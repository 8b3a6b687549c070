"""Training calls are given to torch where whole steps are faster there: what is timed lasts from one call to the
next."""

import textwrap

import started


def run(program):
    prelude = """
        import os
        os.environ.update(DYCL_CHOOSE="1", DYCL_PROFILE="0")
        import time
        import torch, dycl
        from torch import nn
        torch.set_num_threads(1)
    """
    done = started.run(["-c", textwrap.dedent(prelude) + textwrap.dedent(program)], timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_gains_stays():
    out = run("""
        model = dycl.accelerate(nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(16, 16), nn.Tanh())]))
        x = torch.randn(4, 16)
        for _ in range(2000):
            model(x).sum().backward()
        print(dycl.stats(model)["recorded"] / 16)
    """)
    assert float(out) > 1200  # a busy machine may mislead a look or two, each for 96 calls


def test_a_slow_backward_counts():
    """The forward pass gains, but what follows a recorded call takes longer: torch it is."""
    out = run("""
        model = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(16, 16), nn.Tanh())])
        run = dycl.accelerate(model)
        x = torch.randn(4, 16)
        for _ in range(250):
            before = dycl.stats(run)["calls"]
            out = run(x)
            if dycl.stats(run)["calls"] > before:
                time.sleep(0.002)
            out.sum().backward()
        print(dycl.stats(run)["plain_faster"] > 100)
    """)
    assert out.strip() == "True", out


def test_what_torch_computes_does_not_count_as_recorded():
    """Floats of 16 bits train in torch: whether a region is worth it is asked after three calls, not after 24."""
    out = run("""
        model = nn.Sequential(*[m for _ in range(3) for m in (nn.Linear(16, 16), nn.ReLU())]).bfloat16()
        run = dycl.accelerate(model)
        x = torch.randn(4, 16, dtype=torch.bfloat16)
        for _ in range(12):
            run(x).sum().backward()
        stats = dycl.stats(run)
        print(stats["recorded"], stats["torch"] > 0, stats["plain_faster"] > 0)
    """)
    assert out.split() == ["0", "True", "True"], out
