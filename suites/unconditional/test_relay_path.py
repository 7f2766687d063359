"""The relay became unconditional: every iteration that is not idle stashes and gathers; nothing is carried past it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.new_contract


@pytest.fixture(scope="module")
def poisoned(release_runner) -> dict:
    """Schedules whose carried bonus tokens and lengths were overwritten as soon as the scheduler held them."""
    return release_runner.job("poisoned", seed=11, start=0, count=120)


def test_carried_tensors_are_never_read(poisoned: dict) -> None:
    assert [failure["line"] for failure in poisoned["tally"]["failures"]] == []


def test_every_launch_stashes(poisoned: dict) -> None:
    totals = poisoned["totals"]
    assert totals["launches"] > 1000
    assert totals["stashes"] == totals["launches"]


def test_every_decode_gathers(poisoned: dict) -> None:
    totals = poisoned["totals"]
    assert totals["decodes"] > 1000
    assert totals["gathered"] == totals["decodes"]
