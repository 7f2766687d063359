"""No two streams meet in the same memory without an edge: on simulated streams, in every order that a GPU could run.

Runs on any CPU, beside the other suites of a gate. A race is reported from the order that streams and events
guarantee, whatever was computed; what is computed is compared with the oracle as everywhere else.
"""

from __future__ import annotations

import pytest

from fixtures.known import sort_findings
from fixtures.profiles import SCHEDULER_EACH_LATE, SCHEDULER_RACES, VIRTUAL_EACH_LATE, VIRTUAL_RACES
from suites.differential.test_streams import report_failures


@pytest.fixture(autouse=True)
def on_a_cpu(device: str) -> None:
    if device != "cpu":
        pytest.skip("streams are simulated in a gate without a GPU; here they are real")


def report(tally, record_property) -> None:
    """Fail with what diverged; its schedules are kept, and nothing else is to be kept of the check."""
    for failure in tally.failures:
        record_property("kept", failure.get("schedule", ""))  # of one kind no more than so many are
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


def test_the_scheduler_in_orders_of_its_own(runner_for, seed: int, sut, known, tally, record_property) -> None:
    """SGLang's own event loop, write-after-read barrier, record ring and worker around the relay."""
    runner = runner_for("virtual", "scheduler")
    drawn = runner.seeded(seed, 0, SCHEDULER_RACES)
    late = runner.job("interleaved", seed=seed, start=SCHEDULER_RACES, count=SCHEDULER_EACH_LATE)
    for ran in (drawn.to_dict(), late["tally"]):
        tally.merge(ran | {"shapes": [], "live": {}})
    assert tally.schedules == SCHEDULER_RACES + SCHEDULER_EACH_LATE * late["orders"]
    report(tally, record_property)
    _, stale, matched = sort_findings(runner.job("known_races"), "races", sut.release, known)
    for entry in matched:
        record_property("known", [entry.id, entry.reason])
    if stale:
        pytest.fail(f"known races that are not there any more: {', '.join(stale)}", pytrace=False)
