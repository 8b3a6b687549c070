"""Random programs and random calls of every binding's row, compared with eager torch: `python -m tests.fuzz programs
--help`."""


def main(arguments):
    from . import run

    return run.main(arguments)
