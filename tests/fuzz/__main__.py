"""python -m tests.fuzz FUZZER options...; each fuzzer is a module here with main(argv), which answers the exit status."""

import importlib
import sys

FUZZERS = ("programs",)


def main():
    if len(sys.argv) < 2 or sys.argv[1] not in FUZZERS:
        print(f"usage: python -m tests.fuzz {{{','.join(FUZZERS)}}} [options]")
        return 2
    return importlib.import_module(f"tests.fuzz.{sys.argv[1]}").main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
