"""The most memory that steps take, in processes of their own: what was measured before would count."""

import os
import tempfile
from contextlib import contextmanager

from .. import timing

PEERS = ("eager", "dycl", "before")  # a compiler's own memory would be measured, not the step's


@contextmanager
def no_gaps():
    """Freed tensors go back to the system: gaps between them were a tenth, up or down."""
    name = "MALLOC_MMAP_THRESHOLD_"
    old = os.environ.get(name)
    os.environ[name] = "65536"
    try:
        yield
    finally:
        if old is None:
            del os.environ[name]
        else:
            os.environ[name] = old


def measure(workload, results, threads, plan, say):
    """KiB into the details of those results that are right."""
    for name in PEERS:
        if name not in results or results[name].state != "right":
            continue
        process = None
        with tempfile.TemporaryDirectory(prefix="dycl-bench-", ignore_cleanup_errors=True) as directory:
            try:
                with no_gaps():
                    process = timing.Worker(workload.name, name, threads, None, directory, plan.patience,
                                            workload.jobs)
                results[name].details["peak_kib"] = process.ask("memory")
            except timing.Lost as lost:
                say(f"{name}: no figure of its memory: {lost}")
            finally:
                if process:
                    process.stop()
