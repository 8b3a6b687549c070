"""Training programs that nobody asked for, one file a field: what dycl gains on what it was not made for."""

from . import (decoders, dense, generative, graphs, implicit, inputs, language, reinforcement,  # noqa: F401
               representation, science, sequences, signals, tables, vision)
from .program import PROGRAMS  # noqa: F401
