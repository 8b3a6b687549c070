"""Training programs that nobody asked for, one file a field: what dycl gains on what it was not made for."""

from . import (dense, generative, graphs, language, reinforcement, representation, science, sequences,  # noqa: F401
               signals, tables, vision)
from .program import PROGRAMS  # noqa: F401
