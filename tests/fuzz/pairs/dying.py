"""Cases that end their process or hang, for the test of worker.py."""

import ctypes
import signal


def run_case(what):
    if what == "dies":
        ctypes.string_at(0)  # this thread dies; any thread may take a signal that is sent to the process
    if what == "hangs":
        signal.pause()
    return {"outcome": what}
