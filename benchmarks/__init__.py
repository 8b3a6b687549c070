"""dycl against eager torch and against what people would use instead: `python -m benchmarks --help`."""
