"""A program forks while another of its threads computes: the child has no such thread, and waits for none."""

import os
import signal
import threading
import time

import dycl
import torch

WIDTH, PRODUCTS = 1200, 12
ENDED, RAISED, VALUE = 0, 3, 4


def child_asks(tensor):
    """How the child ends that asks for a value of the tensor."""
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            status = ENDED if tensor[0, 0].item() == 2 else VALUE
        except RuntimeError as error:
            status = RAISED if "left behind by a fork" in str(error) else VALUE
        os._exit(status)
    return os.waitpid(child, 0)[1]


def test_a_value_that_a_thread_computed():
    held, going = [], threading.Event()
    weight = torch.randn(WIDTH, WIDTH)

    def work(x):
        y = x + 1
        held.append(y)
        z = x
        for _ in range(PRODUCTS):
            z = z @ weight
        going.set()
        return (z.sum() + y.sum()).item()

    fast = dycl.accelerate(work)
    statuses = []
    for _ in range(3):
        held.clear()
        going.clear()

        def run():
            with torch.no_grad():
                fast(torch.ones(WIDTH, WIDTH))

        thread = threading.Thread(target=run)
        thread.start()
        going.wait()
        time.sleep(0.02)
        statuses.append(child_asks(held[0]))
        thread.join()
        assert held[0][0, 0].item() == 2
    assert all(os.WIFEXITED(status) and os.WEXITSTATUS(status) in (ENDED, RAISED) for status in statuses), statuses
