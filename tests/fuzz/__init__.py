"""Programs that nobody wrote, run in eager torch and through dycl: `python -m tests.fuzz` from the root of the source
tree."""
