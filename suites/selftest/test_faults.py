"""The suite is awake: every planted fault is caught where it should be, and the intact SUT raises nothing.

All faults of a kind share one runner. The counts are those of the gate's own schedules, so they are the same
on every machine.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys

import pytest

from fixtures.faults import CATALOGUE, FAMILIES, Fault
from fixtures.runner_process import RunnerFailed
from fixtures.sut import ROOT

SEED, WITHIN = 1, 200
STALLED = 50  # percent of iterations
MEDIAN = 50
ELSEWHERE = (50, 100, 150)

pytestmark = pytest.mark.new_contract


def seen_in(*suites: str) -> list[Fault]:
    return [fault for fault in CATALOGUE.values() if fault.seen_in in suites]


def test_the_catalogue_covers_its_families() -> None:
    assert len(CATALOGUE) == sum(len(family.faults) for family in FAMILIES), "two faults have one name"
    assert {family.name: len(family.faults) for family in FAMILIES if len(family.faults) < 3} == {}
    assert len(CATALOGUE) >= 100


@pytest.mark.parametrize("kind", ["release", "debug", "scheduler"])
def test_schedules_catch_every_fault(kind: str, runner_for) -> None:
    """And no two faults at one site diverge alike for the first time, so none is counted twice."""
    runner = runner_for("release", "scheduler") if kind == "scheduler" else runner_for(kind)

    def first(fault: Fault, start: int) -> tuple:
        """Site, schedules and divergence from schedule `start` on; without a divergence where none came."""
        tried = runner.job("fault", fault=fault.name, seed=SEED, start=start, count=WITHIN)
        return fault.site, tried["schedules"], tried["caught"] and tried["caught"]["line"]

    found = {fault: first(fault, 0) for fault in seen_in(kind)}
    assert [fault.name for fault, (_, _, line) in found.items() if line is None] == []
    assert statistics.median(schedules for _, schedules, _ in found.values()) < MEDIAN
    for start in ELSEWHERE:  # two that one schedule cannot tell apart
        found = {fault: first(fault, start) for fault, seen in found.items() if list(found.values()).count(seen) > 1}
    assert [fault.name for fault, seen in found.items() if list(found.values()).count(seen) > 1] == []


@pytest.mark.parametrize("kind", ["release", "debug"])
def test_the_intact_sut_raises_nothing(kind: str, runner_for) -> None:
    tally = runner_for(kind).seeded(SEED, 0, WITHIN)
    assert tally.schedules == WITHIN
    assert [failure["line"] for failure in tally.failures] == []


@pytest.mark.cuda
@pytest.mark.parametrize("level", ["relay", "scheduler"])
def test_a_stalled_gpu_shows_every_cross_stream_fault(level: str, runner_for) -> None:
    """A fault may take its CUDA context with it, which fails its schedule as well."""
    runner, missed = runner_for("release", level), []
    for fault in seen_in("virtual" if level == "relay" else "virtual scheduler"):
        with contextlib.suppress(RunnerFailed):
            tried = runner.job("fault", fault=fault.name, seed=SEED, start=0, count=WITHIN, stalls=STALLED)
            missed += [] if tried["caught"] else [fault.name]
    assert missed == []


def test_other_suites_catch_their_faults(sut) -> None:
    """The suites that check something else than streams, run as they are with the fault in place."""
    pairs = [[fault.name, fault.seen_in] for fault in seen_in("dtype", "structure", "unconditional", "kernels")]
    command = [sys.executable, "-W", "ignore", "-m", "fixtures.faults.in_suites", "--sut", sut.root]
    done = subprocess.run(command, cwd=ROOT, input=json.dumps(pairs), capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    tried = [json.loads(line) for line in done.stdout.splitlines()]
    assert [[one["fault"], one["suite"]] for one in tried] == pairs
    assert [one["fault"] for one in tried if not one["caught"]] == [], done.stderr[-3000:]
