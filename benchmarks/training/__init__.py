"""Whole training steps, eager, dycl and others: `python -m benchmarks.training --help`."""
