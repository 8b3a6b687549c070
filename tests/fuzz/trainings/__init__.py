"""Random networks that train, compared with eager torch: `python -m tests.fuzz trainings --help`."""


def main(arguments):
    from ..programs import run

    return run.main(arguments, "trainings", 80)
