"""Cases that end their process or hang, for the test of worker.py."""

import os
import signal


def run_case(what):
    if what == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hangs":
        signal.pause()
    return {"outcome": what}
