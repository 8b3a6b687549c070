"""python -m tests.fuzz FUZZER options...: calls main(options) of tests.fuzz.FUZZER, a module or a package here; it
answers the exit status."""

import importlib
import pkgutil
import sys


def main():
    fuzzers = [m.name for m in pkgutil.iter_modules([__file__.rpartition("/")[0]]) if not m.name.startswith("_")]
    if len(sys.argv) < 2 or sys.argv[1] not in fuzzers:
        print(f"usage: python -m tests.fuzz {{{','.join(fuzzers)}}} [options]")
        return 2
    return importlib.import_module(f"tests.fuzz.{sys.argv[1]}").main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
