"""Counts are the same however the work is cut, and an event counts only where it put relay state at stake."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from fixtures.draw import seeded
from fixtures.events import EVENTS, IMPOSSIBLE_PAIRS, EventCounter
from fixtures.known import Known, load_known, sort_findings
from fixtures.lane import Lane
from fixtures.oracle_system import OracleSystem
from fixtures.overlap_loop import OverlapLoop
from fixtures.plan import Plan
from fixtures.profiles import PROFILES, budgeted_chunks, chunks
from fixtures.schedule import parse
from fixtures.tally import Tally


def events_of(document: dict) -> Counter:
    oracle = OracleSystem()
    loop = OverlapLoop(Plan.of(parse(json.dumps({"version": 1} | document))), oracle, Lane("cpu"), frozenset(), True)
    loop.run()
    return loop.events.counts


def test_counts_do_not_depend_on_how_the_work_is_cut(runner_on, sut) -> None:
    runner = runner_on(sut)
    whole = runner.seeded(seed=9, start=0, count=30).to_dict()
    parts = Tally()
    for start, count in ((17, 13), (0, 5), (5, 12)):
        parts.merge(runner.seeded(seed=9, start=start, count=count).to_dict())
    cut = parts.to_dict()
    for name in ("schedules", "iterations", "events", "pairs", "modes", "live", "failures"):
        assert cut[name] == whole[name], name
    assert sorted(cut["shapes"]) == sorted(whole["shapes"])


@pytest.mark.parametrize("name", ["quick", "gate"])
def test_chunks_cover_every_index_once(name: str) -> None:
    profile = PROFILES[name]
    parts = chunks(profile.release, profile.debug)
    indices = [index for part in parts for index in range(part.start, part.start + part.count)]
    assert sorted(indices) == list(range(profile.release + profile.debug))


@pytest.mark.parametrize("workers", [1, 2, 64])
@pytest.mark.parametrize("seconds", [1, 1800, 8 * 3600])
def test_a_budget_is_cut_into_few_chunks_with_both_kinds(seconds: float, workers: int) -> None:
    parts = budgeted_chunks(seconds, workers)
    assert workers <= len(parts) <= 3000 + workers
    starts = [part.start for part in parts]
    assert starts == [place * parts[0].count for place in range(len(parts))]


def test_a_single_request_shows_nothing_but_its_prefill() -> None:
    assert events_of({"requests": [{"id": 1, "budget": 6}]}) == {"prefill": 1, "drain": 1}


def test_filter_counts_where_one_goes_and_one_stays() -> None:
    counts = events_of({"requests": [{"id": 1, "budget": 2}, {"id": 2, "budget": 30, "accept": [0]}]})
    assert counts["filter"] == 1
    assert counts["merge"] == 0


def test_merge_counts_where_two_batches_meet() -> None:
    counts = events_of({"requests": [{"id": 1, "budget": 20, "accept": [0]}, {"id": 2, "arrive": 3, "budget": 20, "accept": [0]}]})
    assert counts["merge"] == 1


def test_idle_counts_where_live_rows_wait() -> None:
    alone = {"requests": [{"id": 1, "arrive": 1, "budget": 9, "accept": [0]}]}
    assert events_of(alone | {"iterations": [{"idle": True}]})["idle"] == 0
    assert events_of(alone | {"iterations": [{}, {}, {"idle": True}]})["idle"] == 1


def test_abort_counts_where_a_slot_was_held() -> None:
    waiting = {"run": {"slots": 1}, "requests": [{"id": 1, "budget": 9}, {"id": 2, "budget": 9}], "iterations": [{}, {"abort": [2]}]}
    assert events_of(waiting)["abort"] == 0
    assert events_of(waiting | {"iterations": [{}, {"abort": [1]}]})["abort"] == 1


def test_reuse_counts_while_the_old_owner_is_in_flight() -> None:
    one_slot = {"run": {"slots": 1}, "requests": [{"id": 1, "budget": 1}, {"id": 2, "budget": 3}]}
    assert events_of(one_slot)["reuse"] == 1
    assert events_of(one_slot | {"run": {"slots": 2}})["reuse"] == 0
    assert events_of(one_slot | {"run": {"slots": 1, "overlap": False}})["reuse"] == 0


def test_retract_and_resume_come_in_pairs() -> None:
    counts = events_of(
        {
            "requests": [{"id": 1, "budget": 12, "accept": [0]}, {"id": 2, "budget": 12, "accept": [0]}],
            "iterations": [{}, {}, {"retract": 1}],
        }
    )
    assert (counts["retract"], counts["resume"]) == (1, 1)


def test_pairs_count_within_two_iterations() -> None:
    counter = EventCounter()
    for iteration, event in ((1, "merge"), (1, "idle"), (3, "filter"), (4, "abort")):
        counter.add(iteration, event)
    assert counter.pairs == {
        ("merge", "idle"): 1,
        ("merge", "filter"): 1,
        ("idle", "filter"): 1,
        ("filter", "abort"): 1,
    }


def test_pairs_called_impossible_never_happen() -> None:
    pairs: Counter = Counter()
    for index in range(150):
        loop = OverlapLoop(Plan.of(seeded(21, index)), OracleSystem(), Lane("cpu"), frozenset(), True)
        loop.run()
        pairs.update(loop.events.pairs)
    assert {pair: pairs[pair] for pair in IMPOSSIBLE_PAIRS} == dict.fromkeys(IMPOSSIBLE_PAIRS, 0)
    assert sum(1 for a in EVENTS for b in EVENTS if pairs[a, b]) >= 90, "the others do"


def test_known_findings_speak_for_their_releases_alone() -> None:
    entry = Known("narrow", "dtype", "x is int32", "0.5.15", "0.5.15.post1", "reviewed")
    assert sort_findings(["x is int32"], "dtype", "0.5.15", [entry]) == ([], [], [entry])
    assert sort_findings(["x is int32"], "dtype", "0.5.16", [entry]) == (["x is int32"], [], [])
    assert sort_findings(["x is int32"], "dtype", "", [entry]) == (["x is int32"], [], [])
    assert sort_findings([], "dtype", "0.5.15.post1", [entry]) == ([], ["narrow"], [])
    assert all(entry.reason for entry in load_known())
