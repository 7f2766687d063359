"""Draft inputs promise more than values: idle ones are laid out like any other, and merges refuse half of a pair."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.new_contract


@pytest.fixture(scope="module")
def promises(release_runner) -> dict:
    return release_runner.job("draft_inputs")


def test_all_are_laid_out_alike(promises: dict) -> None:
    layouts = promises["layouts"]
    assert layouts["idle"] == layouts["after decode"] == layouts["after prefill"]
    assert {name: set(rows) for name, rows in promises["rows"].items()} == {"after prefill": {2}, "after decode": {2}, "idle": {0}}


def test_each_counts_as_one_token(promises: dict) -> None:
    """The scheduler sizes its token accounting by these, where a release has them."""
    assert {count for counts in promises["accounting"].values() for count in counts} <= {1}
    assert len({len(counts) for counts in promises["accounting"].values()}) == 1
    assert promises["kinds"] == ["DFLASH_DRAFT"]


def test_merge_refuses_half_of_a_pair(promises: dict) -> None:
    assert promises["refused"] == {"future indices": True, "host lengths": True}


def test_merge_takes_over_what_only_the_newcomers_have(promises: dict) -> None:
    assert promises["taken"] == [[3, 4], [7]]


def test_filter_and_merge_leave_the_forwards_tensors_alone(promises: dict) -> None:
    """Filtering them on the schedule stream would race with the forward (SGLang 35198)."""
    assert promises["left_alone"] == {"merge": True, "filter": True}
