"""SGLang's own scheduler on simulated streams: each missing edge is caught with its two places, does harm in some order, and nothing else is caught."""

from __future__ import annotations

import pytest

from fixtures.broken_copy import Edit
from fixtures.draw import SHAPES, seeded
from fixtures.faults import CATALOGUE, Fault
from fixtures.schedule import STALL_POINTS, Iteration, Request, Run, Schedule, Stall, Switch
from fixtures.sglang_scheduler.run import DRAFT_PROBS, INDEX_SEEDS
from fixtures.virtual.interleaving import STREAMS
from reports.minimize import minimize
from reports.reproducer import story_of_smallest, write_reproducer

SEED, WITHIN = 1, 24  # n-gram speculation is in one of ten
IN_ORDER = [(), *((Switch(hold=(stream,)),) for stream in range(STREAMS + 1))]
LOST_FENCE = "publish-event-recorded-off-the-forward-stream"

pytestmark = pytest.mark.new_contract


def faults() -> list[Fault]:
    return [fault for fault in CATALOGUE.values() if fault.seen_in == "virtual scheduler"]


@pytest.fixture
def runner(runner_for):
    return runner_for("virtual", "scheduler")


def drawn(index: int, switches: tuple[Switch, ...] = (), shape: str = "gate") -> Schedule:
    return seeded(SEED, index, SHAPES[shape]).model_copy(update={"interleaving": switches})


def raced(runner, fault: str, schedule: Schedule) -> dict:
    return runner.job("raced", fault=fault, document=schedule.to_json())


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_every_missing_edge_is_caught_and_does_harm(fault: Fault, runner) -> None:
    """In program order, where all values are right, and the same each time; with a stream late a value is wrong."""
    for index in range(WITHIN):
        schedule = drawn(index)
        found = raced(runner, fault.name, schedule)
        if found["divergence"] is not None:
            break
    assert found["races"]
    assert found["divergence"]["field"] in ("race", "lifetime")
    assert raced(runner, fault.name, schedule) == found
    places = [race[side]["site"] for race in found["races"] for side in ("first", "second")]
    assert any(place.startswith("sglang/") for place in places)
    harm = (raced(runner, fault.name, drawn(later, order)) for later in range(index, index + 4) for order in IN_ORDER[1:])
    assert any(late["divergence"] and late["divergence"]["field"] not in ("race", "lifetime") for late in harm)


def test_no_two_faults_are_one(runner) -> None:
    """At one site none diverges for the first time as another does."""
    seen = [(fault.site, runner.job("fault", fault=fault.name, seed=SEED, start=0, count=WITHIN)["caught"]["line"]) for fault in faults()]
    assert len(set(seen)) == len(faults()) >= 3


def test_a_lost_publish_fence_names_publish_and_resolve(runner) -> None:
    """Public issue 30435: behind the read-done event of a captured verify, nothing else orders the next resolve with the publish."""
    (race,) = raced(runner, LOST_FENCE, drawn(0))["races"]
    assert [race[side]["site"].rpartition(" in ")[2] for side in ("first", "second")] == ["publish", "resolve_seq_lens_cpu"]
    assert [race[side]["stream"] for side in ("first", "second")] == ["the forward stream", "the schedule stream"]


@pytest.mark.parametrize("shape", ["dflash", "eagle"])
def test_the_intact_scheduler_has_no_race(shape: str, runner) -> None:
    for index, order in enumerate(IN_ORDER):
        assert raced(runner, "", drawn(index, order, shape)) == {"divergence": None, "races": []}


def test_draft_probabilities_and_index_seeds_are_relayed_there_too(runner) -> None:
    run = Run(eagle=1, block_size=3, draft_probs=True, index_seeds=True)
    tally = runner.schedule(Schedule(run=run, requests=(Request(id=0, budget=6), Request(id=1, budget=9, arrive=1))).to_json(), save=False)
    assert tally.failures == []
    assert tally.modes[DRAFT_PROBS] > 3
    assert tally.modes[INDEX_SEEDS] > 3


@pytest.mark.parametrize("point", STALL_POINTS)
def test_a_stall_holds_its_stream_and_does_no_harm(point: str, runner) -> None:
    schedule = drawn(1).model_copy(update={"iterations": (Iteration(stalls=(Stall(point=point, cycles=1),)),) * 30})
    assert raced(runner, "", schedule)["divergence"] is None
    if point == "before_publish":
        assert raced(runner, LOST_FENCE, drawn(1))["divergence"]["field"] == "race"
        assert raced(runner, LOST_FENCE, schedule)["divergence"]["field"] == "seq_lens"


NO_BARRIER = Edit(
    "sglang/srt/managers/scheduler.py",
    "                batch_result = self.run_batch(batch)\n                # Fence result processing behind this forward's shared reads.\n"
    "                self._apply_war_barrier()\n",
    "                batch_result = self.run_batch(batch)\n",
)


def test_a_missing_barrier_becomes_a_small_reproducer_with_its_streams(broken_sut, runner_on, tmp_path) -> None:
    runner = runner_on(broken_sut(NO_BARRIER), device="virtual", level="scheduler")
    requests = tuple(Request(id=identity, prompt=4, budget=5, family=1, shared=3) for identity in range(3))
    small = minimize(Schedule(run=Run(block_size=2, slots=3), requests=requests).to_json(), runner, 100)
    assert small.complete
    assert small.failure["field"] == "race"
    assert "memory_pool.py" in small.failure["line"]
    assert small.size()[0] == 1
    made = write_reproducer(tmp_path, small, story_of_smallest(small, runner), runner)
    assert made.outcome.on_sut == 1
    assert (made.folder / "streams.svg").is_file()
    readme = (made.folder / "README.md").read_text(encoding="utf-8")
    assert "--device virtual --level scheduler" in readme or "--level scheduler --device virtual" in readme
