"""The list of deliberate mistakes fits the sources: what looks for them (`make mutations`) takes minutes each."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.mutations.mistakes import MISTAKES  # noqa: E402  (where the tree lies is found out first)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m.name)
def test_stands_in_the_source_once(mistake):
    assert (ROOT / "csrc" / mistake.path).read_text().count(mistake.old) == 1
    assert mistake.old != mistake.new


def test_what_sees_them_is_there():
    for mistake in MISTAKES:
        for test in mistake.seen_by.split():
            kind, name = test.split("/")
            assert (ROOT / "tests" / kind / f"test_{name}.{'c' if kind == 'c' else 'py'}").exists(), test
