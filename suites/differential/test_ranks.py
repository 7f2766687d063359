"""Two ranks of tensor parallelism choose and compute the same."""

from __future__ import annotations

from suites.differential.test_streams import report_failures

SCHEDULES, SIMULATED = 60, 12


def test_ranks_agree(level: str, seed: int, runner_for, pytestconfig, tally) -> None:
    """Each schedule gives two processes that hash differently and find other memory the same transcript."""
    count = SIMULATED if pytestconfig.getoption("device") == "virtual" else SCHEDULES
    tally.merge(runner_for("release", level).beside(runner_for("other_rank", level), seed, 0, count).to_dict())
    report_failures(tally)
