"""One workload: a model, the inputs it is called with in turn, and what dycl is meant to reach."""

from dataclasses import dataclass
from typing import Callable, Optional

INPUTS = 4


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    build: Callable  # () -> (module, list of input tensors)
    goal: Optional[float]  # what dycl has to be faster than eager by; None: no slower
    tolerance: float = 1e-4  # largest error allowed, as a part of the largest absolute value of eager's result
    calibrate: Optional[Callable] = None  # module -> list of input tensors; runs the model, so never where it is timed
    jobs = "benchmarks.worker"  # the module that says what a process does for a peer
