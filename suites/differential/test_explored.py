"""The same promise over schedules that Hypothesis explores, and shrinks when one fails."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from fixtures.artifacts import save_failure
from fixtures.draw import schedules
from fixtures.schedule import Schedule


def test_explored_schedules_are_bitwise_identical(level: str, explored: int, seed: int, runner_for, tally, sut, artifacts) -> None:
    runner = runner_for("release", level)
    smallest: list[tuple[Schedule, dict]] = []
    passed = []

    @hypothesis.seed(seed)
    @settings(
        max_examples=explored,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(schedules())
    def explore(schedule: Schedule) -> None:
        ran = runner.schedule(schedule.to_json(), save=False)
        if ran.failures:
            smallest[:] = [(schedule, ran.failures[0])]
        elif not smallest:
            passed.append(ran)
        assert not ran.failures

    try:
        explore()
    except AssertionError:
        if not smallest:
            raise
        schedule, failure = smallest[0]
        path = save_failure(artifacts, schedule.to_json(), failure, sut.to_dict(), failure["mode"])
        tally.failures.append(failure | {"schedule": str(path)})
    for ran in passed:
        # Small schedules on purpose, some of them twice: they count as run, not for how full a batch was.
        tally.merge(ran.to_dict() | {"shapes": [], "live": {}})
    if tally.failures:
        failure = tally.failures[0]
        pytest.fail(f"{failure['verdict']} {failure['line']}\n  schedule: {failure['schedule']}", pytrace=False)
