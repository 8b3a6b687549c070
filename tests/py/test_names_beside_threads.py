"""What torch calls a node is asked by running functions on zeros. Nobody else in the process may notice: other threads
go on drawing numbers, and their warnings are shown."""

import threading
import warnings

import torch
from dycl import _names


def test_warnings_of_others_are_shown():
    inside, leave = threading.Event(), threading.Event()

    def ask(enter, left):
        with _names._silent():
            enter.set()
            left.wait()
            warnings.warn("ours", stacklevel=1)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = threading.Thread(target=ask, args=(inside, leave))
        first.start()
        inside.wait()
        second_enters, second_leaves = threading.Event(), threading.Event()
        second = threading.Thread(target=ask, args=(second_enters, second_leaves))
        second.start()
        second_enters.wait()
        warnings.warn("while both are inside", stacklevel=1)
        leave.set()
        first.join()
        warnings.warn("while one is", stacklevel=1)
        second_leaves.set()
        second.join()
        warnings.warn("when all have left", stacklevel=1)
    assert [str(w.message) for w in caught] == ["while both are inside", "while one is", "when all have left"]


def test_numbers_of_others_come_once():
    ends = threading.Event()
    beside = threading.Thread(target=ends.wait)
    beside.start()

    def function(x):
        drawing = threading.Thread(target=torch.rand, args=(3,))
        drawing.start()
        drawing.join()
        return x * 2

    try:
        torch.manual_seed(0)
        first = torch.rand(3)
        torch.manual_seed(0)
        look = _names.Look(torch.float32, (2,), (1,), True, False)
        assert _names.name(function, ((look,), {}), 0, False)[0] == "MulBackward0"
        assert not torch.equal(torch.rand(3), first)
    finally:
        ends.set()
        beside.join()


def test_what_draws_is_undone():
    torch.manual_seed(0)
    wanted = torch.rand(3)
    torch.manual_seed(0)
    look = _names.Look(torch.float32, (2,), (1,), True, False)
    beside, ends = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: (beside.set(), ends.wait()))
    other.start()
    beside.wait()
    try:
        assert _names.name(torch.nn.functional.dropout, ((look, 0.5, True), {}), 0, False) is not None
    finally:
        ends.set()
        other.join()
    assert torch.equal(torch.rand(3), wanted)
