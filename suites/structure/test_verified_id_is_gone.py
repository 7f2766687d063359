"""Risk 2 of the refactor: a deleted buffer that something may still touch, in the source or at run time."""

from __future__ import annotations

import pytest

OLD_NAME = "verified_id"

pytestmark = pytest.mark.new_contract


@pytest.fixture(scope="module")
def accesses(release_runner) -> dict:
    return release_runner.job("accesses", seed=7, start=0, count=30)


def test_no_source_names_it(release_runner) -> None:
    """Names, attributes, arguments and strings of the relay, the worker and the kernels."""
    assert release_runner.job("mentions", word=OLD_NAME) == []


def test_nothing_touches_it_at_run_time(accesses: dict) -> None:
    """Every attribute that relay, draft input, payload and worker touch, however its name was put together."""
    assert [name for name in accesses["names"] if OLD_NAME in name] == []


def test_the_watch_was_awake(accesses: dict) -> None:
    """The names that the new channel must touch were seen, so the absence of the old one means something."""
    assert {"bonus_tokens", "output_tokens_buf", "future_indices", "new_seq_lens_buf"} <= set(accesses["names"])
    assert accesses["tally"]["iterations"] > 300


def test_no_buffer_of_it_is_left(accesses: dict) -> None:
    assert [name for name in accesses["buffers"] if OLD_NAME in name] == []
