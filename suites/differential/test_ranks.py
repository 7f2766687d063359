"""Two ranks of tensor parallelism choose and compute the same."""

from __future__ import annotations

import pytest

from suites.differential.test_streams import report_failures

SCHEDULES, SIMULATED = 30, 12


def test_ranks_agree(levels: tuple[str, ...], seed: int, runner_for, pytestconfig, tally) -> None:
    """Each schedule gives two processes that hash differently and find other memory the same transcript."""
    if "scheduler" not in levels:
        pytest.skip("SGLang chooses nothing by itself: --level relay")
    count = SIMULATED if pytestconfig.getoption("device") == "virtual" else SCHEDULES
    tally.merge(runner_for("release", "scheduler").beside(runner_for("other_rank", "scheduler"), seed, 0, count).to_dict())
    report_failures(tally)
