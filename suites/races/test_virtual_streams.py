"""No two streams meet in the same memory without an edge: on simulated streams, in every order that a GPU could run.

Runs on any CPU, beside the other suites of a gate. A race is reported from the order that streams and events
guarantee, whatever was computed; what is computed is compared with the oracle as everywhere else.
"""

from __future__ import annotations

import pytest

from fixtures.profiles import VIRTUAL_EACH_LATE, VIRTUAL_RACES
from suites.differential.test_streams import report_failures


def report(tally, record_property) -> None:
    """Fail with what diverged; its schedules are kept, and nothing else is to be kept of the check."""
    for failure in tally.failures:
        record_property("kept", failure["schedule"])
    report_failures(tally)


@pytest.mark.parametrize("start", range(0, VIRTUAL_RACES, VIRTUAL_RACES // 2))
def test_schedules_in_orders_of_their_own(virtual_runner, seed: int, start: int, tally, record_property) -> None:
    ran = virtual_runner.seeded(seed, start, VIRTUAL_RACES // 2)
    tally.merge(ran.to_dict() | {"shapes": [], "live": {}})  # they count as run, and for no more than that
    assert ran.schedules == VIRTUAL_RACES // 2
    report(tally, record_property)


def test_every_stream_late_in_turn(virtual_runner, seed: int, tally, record_property) -> None:
    found = virtual_runner.job("interleaved", seed=seed, start=VIRTUAL_RACES, count=VIRTUAL_EACH_LATE)
    tally.merge(found["tally"] | {"shapes": [], "live": {}})
    assert found["tally"]["schedules"] == VIRTUAL_EACH_LATE * found["orders"]
    report(tally, record_property)
