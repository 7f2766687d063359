"""The oracle is the old relay: 0.5.14's own relay, worker and scheduler give its values, down to the dtype."""

from __future__ import annotations

import pytest

from fixtures.sut import SutError, locate

OLD = "0.5.14"
SEED, SCHEDULES = 3, {"relay": 120, "scheduler": 40}
STAKES = ("filter", "merge", "drain", "retract", "resume", "abort")


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("level", ["relay", "scheduler"])
def test_the_old_release_does_what_the_oracle_says(level: str, debug: bool, runner_on) -> None:
    """At scheduler level its own `DFlashWorkerV2` accepts and publishes, and its own event loop filters, merges and retracts."""
    try:
        sut = locate(OLD)
    except SutError as error:
        pytest.skip(str(error))
    runner = runner_on(sut, level=level, debug=debug)
    tally = runner.seeded(SEED, 0, SCHEDULES[level], "dflash")
    assert runner.identity["contract"] == "verified_id"
    assert {"bonus_tokens", "new_bonus", "seq_lens", "accept_lens", "out_tokens"} <= set(runner.identity["produces"])
    assert [failure["line"] for failure in tally.failures] == []
    assert {event for event in STAKES if tally.events[event] < 10} == set()
