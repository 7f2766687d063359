"""The promise of the refactor: the oracle, the SUT and plain autoregressive decoding give the same tokens."""

from __future__ import annotations

import pytest

from fixtures.profiles import Chunk
from fixtures.schedule import load
from fixtures.tally import Tally

TRIES_ON_A_GPU = 5  # what races does not always lose


def test_streams_are_bitwise_identical(chunk: Chunk, seed: int, stalls: int, runner_for, tally, time_left) -> None:
    """Each schedule of the chunk gives the oracle's transcript, value for value and dtype for dtype."""
    if not time_left():
        pytest.skip("not started: the budget is spent")
    tally.merge(runner_for(chunk.kind, chunk.level).seeded(seed, chunk.start, chunk.count, stalls=stalls).to_dict())
    report_failures(tally)


@pytest.mark.replay
def test_replay(replayed: str, levels: tuple[str, ...], runner_for, tally, record_property) -> None:
    """A kept schedule, in release and in debug mode and on two ranks, at each level asked for; on a GPU a few times, until it fails."""
    schedule = load(replayed)
    document, about = schedule.to_json(), {"file": replayed, "requests": len(schedule.requests)}
    for level in levels:
        for kind in ("release", "debug"):
            runner, ran = runner_for(kind, level), Tally()
            for _ in range(TRIES_ON_A_GPU if runner.on_gpu and not tally.failures else 1):
                ran = runner.schedule(document)
                tally.merge(ran.to_dict())
                if tally.failures:
                    break
            record_property("replayed", about | outcome(runner.mode(), ran))
        if level == "scheduler":
            apart = runner_for("release", level).apart(runner_for("other_rank", level), document)
            tally.failures += apart
            record_property("replayed", about | outcome("two ranks, scheduler level", Tally(failures=apart)))
    report_failures(tally)


def outcome(mode: str, ran: Tally) -> dict:
    """What the verdict says of one run of one schedule. what: events that happened, and what else ran in it, with counts."""
    apart = {"overlap", "synchronous", *mode.split(", ")}
    what = {**ran.events, **{name: count for name, count in ran.modes.items() if name not in apart}}
    verdict = ran.failures[0]["verdict"] if ran.failures else ""
    return {"mode": mode, "iterations": ran.iterations, "what": {name: count for name, count in what.items() if count}, "verdict": verdict}


def report_failures(tally) -> None:
    if not tally.failures:
        return
    lines = []
    for alike in tally.kinds():
        first = alike[0]
        lines += [f"{first['verdict']} {first['line']}", *(f"    {line}" for line in first["history"])]
        lines += [f"  schedule: {first['schedule']}"] if "schedule" in first else []
        lines += [f"  and {len(alike) - 1} more like it"] if len(alike) > 1 else []
    pytest.fail("\n".join(lines), pytrace=False)
