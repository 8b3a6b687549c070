"""Every row of the operator registry as producer with every row as consumer, compared with eager torch: `python -m
tests.fuzz pairs --help`."""


def main(arguments):
    from . import run

    return run.main(arguments)
