"""What ``DYCL_LOG`` asks for, on its way to Python's logging: the topic ``fuse`` goes to the logger ``dycl.fuse`` at
level DEBUG.

The core keeps texts until an accelerated call or a backward pass has ended (csrc/py/site/log.h): a handler may run any
code, also dycl's."""

import logging
import os


def start(core):
    if not os.environ.get("DYCL_LOG"):
        return
    logging.getLogger("dycl").setLevel(logging.DEBUG)  # what was asked for is meant to be seen
    core.set_log(lambda: deliver(core))


def deliver(core):
    texts, lost = core.log_take()
    root = logging.getLogger("dycl")
    if not root.hasHandlers():  # asked now: a program may set up its logging late
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        root.addHandler(handler)
    for topic, text in texts:
        logging.getLogger(f"dycl.{topic}").debug("%s", text.rstrip("\n"))
    if lost:
        root.warning("dycl: %d texts of DYCL_LOG had no room and are lost", lost)
