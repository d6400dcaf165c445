"""The list of planted defects stays true: each has its place in the source, its test, and its line in docs/faults.md.

Whether the tests find them, says `python -m tests.mutants`, which takes minutes.
"""

from pathlib import Path

import pytest

from tests.mutants import MUTANTS, PROJECT, Mutant

ALL = pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])


@ALL
def test_the_defect_can_be_planted_in_one_place(mutant: Mutant) -> None:
    text = Path(PROJECT, mutant.file).read_text()
    assert [text.count(before) for before, _ in mutant.changes] == [1] * len(mutant.changes)


@ALL
def test_the_guide_names_it_with_the_test_that_finds_it(mutant: Mutant) -> None:
    file, _, test = mutant.test.partition("::")
    assert not test or f"def {test}(" in Path(PROJECT, file).read_text()
    assert f"| {mutant.name} | `{mutant.test.removeprefix('tests/')}` |" in Path(PROJECT, "docs/faults.md").read_text()
