"""What the coverage report says of a function: what is open, what is explained, and what is explained in vain."""

from __future__ import annotations

import json

import pytest

from reports.coverage import REVIEWED, Part, review, to_markdown


@pytest.fixture
def part() -> Part:
    """Lines 5, 6 and 9 were not run, and neither was the way from 2 to 8."""
    return Part("sglang/srt/file.py", "Kind.method", 20, 15, True, [5, 6, 9], [(4, 5), (2, 8)])


def test_what_was_not_run_is_open_until_it_is_explained(part: Part) -> None:
    assert part.unexplained() == ["5", "6", "9", "2->8"]
    part.reasons = {"5-6": "only at start-up"}
    assert part.unexplained() == ["9", "2->8"]
    part.reasons |= {"9": "AMD GPUs", "2->8": "always true here"}
    assert part.unexplained() == []


def test_an_explanation_of_what_is_run_is_stale(part: Part) -> None:
    part.reasons = {"5-6": "fits", "7": "runs", "3->4": "runs", "whole": "entered after all"}
    assert sorted(part.stale()) == ["3->4", "7", "whole"]
    assert "**`Kind.method` (file.py) whole, 7, 3->4: explained, and run**" in "\n".join(
        to_markdown("0.5.23", [part], {part.file: (15, 40)}, [], True)
    )


def test_a_function_that_is_no_part_of_the_path_counts_as_a_whole(part: Part) -> None:
    part.entered, part.run, part.reasons = False, 0, {"whole": "n-gram speculation"}
    assert (part.unexplained(), part.stale()) == ([], [])


def test_only_the_release_that_was_reviewed_is_explained(part: Part) -> None:
    assert review([part], "0.5.23")
    assert not review([part], "0.5.14")
    reasons = [why for of in json.loads(REVIEWED.read_text())["0.5.23"].values() for one in of.values() for why in one.values()]
    assert len(reasons) > 100
    assert all(why.strip() for why in reasons)
