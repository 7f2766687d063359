"""Risk 2 of the refactor: a deleted buffer that something may still touch, in the source or at run time."""

from __future__ import annotations

import json

import pytest

from fixtures.artifacts import save_failure
from fixtures.judge import DIVERGED, Divergence

OLD_NAME = "verified_id"

pytestmark = pytest.mark.new_contract


@pytest.fixture(scope="module")
def accesses(release_runner) -> dict:
    return release_runner.job("accesses", seed=7, start=0, count=30, word=OLD_NAME)


def test_no_source_names_it(release_runner, sut, artifacts, record_property) -> None:
    """Names, attributes, arguments and strings of the relay, the worker and the kernels."""
    places = release_runner.job("mentions", word=OLD_NAME)
    if places:
        found = Divergence(DIVERGED, OLD_NAME, "source", -1, -1, -1, "no mention", places[0])
        document = json.dumps({"word": OLD_NAME, "places": places})
        path = save_failure(artifacts, document, found.to_dict(), sut.to_dict(), "release mode", "check.json")
        record_property("kept", str(path))
    assert places == []


def test_nothing_touches_it_at_run_time(accesses: dict, record_property) -> None:
    """Every attribute that relay, draft input, payload and worker touch, however its name was put together."""
    touched = [name for name in accesses["names"] if OLD_NAME in name]
    if accesses["kept"]:
        record_property("kept", accesses["kept"])
    assert touched == [], f"the first schedule that does is in {accesses['kept']}"


def test_the_watch_was_awake(accesses: dict) -> None:
    """The names that the new channel must touch were seen, so the absence of the old one means something."""
    assert {"bonus_tokens", "output_tokens_buf", "future_indices", "new_seq_lens_buf"} <= set(accesses["names"])
    assert accesses["tally"]["iterations"] > 300


def test_no_buffer_of_it_is_left(accesses: dict) -> None:
    assert [name for name in accesses["buffers"] if OLD_NAME in name] == []
