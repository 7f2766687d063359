"""The plain state machine that the suite is compared with is a fair one: right on an intact relay, and no sleeper."""

from __future__ import annotations

import pytest

from fixtures.faults import CATALOGUE

EXAMPLES = 100
PLAIN = (
    "stash-rows-reversed",
    "publish-rows-rolled",
    "tokens-gathered-once-for-a-batch",
    "filter-forgets-the-future-indices",
    "merge-puts-newcomers-first",
    "idle-stash-allocates",
    "tokens-through-float32",
    "host-lengths-lag-by-one-iteration",
    "placeholder-for-requests-that-were-not-in-the-batch",
)
BEYOND = (
    "newcomer-gets-the-old-owners-token",  # needs a slot that is handed on while a forward holds it
    "filter-without-future-indices-forgets-tokens",  # needs a synchronous scheduler
    "idle-publish-drops-the-event",  # needs a look at the relay's state
)


def test_it_passes_on_the_intact_sut(release_runner) -> None:
    assert release_runner.job("state_machine", fault="", examples=EXAMPLES)["what"] == ""


@pytest.mark.new_contract
def test_it_catches_what_values_alone_can_show(release_runner) -> None:
    missed = [name for name in PLAIN if not release_runner.job("state_machine", fault=name, examples=EXAMPLES)["caught"]]
    assert missed == []


@pytest.mark.new_contract
def test_it_misses_what_it_has_no_model_of(release_runner) -> None:
    """Three faults that schedules catch; each says what the state machine would need."""
    caught = [name for name in BEYOND if release_runner.job("state_machine", fault=name, examples=EXAMPLES)["caught"]]
    assert caught == []
    assert {CATALOGUE[name].seen_in for name in BEYOND} == {"release"}
