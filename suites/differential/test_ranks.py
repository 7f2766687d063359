"""Two ranks of tensor parallelism choose and compute the same."""

from __future__ import annotations

import pytest

from suites.differential.test_streams import report_failures

SCHEDULES, SIMULATED = 30, 12


def test_ranks_agree(levels: tuple[str, ...], seed: int, stalls: int, runner_for, pytestconfig, tally) -> None:
    """Each schedule gives two processes that hash differently, find other memory and wait for other streams the same transcript."""
    if "scheduler" not in levels:
        pytest.skip("SGLang chooses nothing by itself: --level relay")
    count = SIMULATED if pytestconfig.getoption("device") == "virtual" else SCHEDULES
    ranks = [runner_for(kind, "scheduler") for kind in ("release", "other_rank")]
    tally.merge(ranks[0].beside(ranks[1], seed, 0, count, stalls).to_dict())
    report_failures(tally)
