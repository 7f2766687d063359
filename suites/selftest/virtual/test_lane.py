"""SGLang on simulated streams: each cross-stream fault is caught at once, with its two places, and nothing else is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fixtures.broken_copy import Edit
from fixtures.draw import seeded
from fixtures.faults import CATALOGUE, Fault
from fixtures.kinds import kind_of
from fixtures.schedule import Iteration, Schedule, Stall, Switch, parse
from fixtures.sut import ROOT
from fixtures.virtual.interleaving import STREAMS
from reports.minimize import minimize
from reports.reproducer import story_of_smallest, write_reproducer

SEED, WITHIN, SECONDS = 1, 3, 10
EAGER_AND_LATE = [(), *((Switch(hold=(stream,)),) for stream in range(STREAMS + 1))]

pytestmark = pytest.mark.new_contract


def faults() -> list[Fault]:
    return [fault for fault in CATALOGUE.values() if fault.seen_in == "virtual"]


def in_order(schedule: Schedule, switches: tuple[Switch, ...]) -> str:
    return schedule.model_copy(update={"interleaving": switches}).to_json()


def sites(race: dict) -> list[str]:
    return [race[side]["site"] for side in ("first", "second")]


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_every_cross_stream_fault_is_caught_with_its_places(fault: Fault, virtual_runner) -> None:
    tried = [virtual_runner.job("fault", fault=fault.name, seed=SEED, start=0, count=WITHIN) for _ in range(2)]
    caught = [one["caught"] for one in tried]
    assert caught[0] is not None
    assert caught[0] == caught[1], "the same each time"
    assert caught[0]["verdict"] == "DIVERGED", caught[0]["line"]
    assert max(one["seconds"] for one in tried) < SECONDS
    places = caught[0]["line"] + " ".join(caught[0]["history"])
    assert "sglang/" in places


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_every_order_sees_the_race_and_some_order_the_harm(fault: Fault, virtual_runner) -> None:
    schedule = seeded(SEED, 0)
    first, *others = (virtual_runner.job("raced", fault=fault.name, document=in_order(schedule, order)) for order in EAGER_AND_LATE)
    assert first["races"]
    assert any(other["divergence"]["field"] not in ("race", "lifetime") for other in others), "no order shows the harm"
    known = {tuple(sites(race)) for race in first["races"]}
    for other in others:  # a wrong value may end the run before the other races
        assert known & {tuple(sites(race)) for race in other["races"]}


def test_a_lost_publish_fence_names_publish_and_resolve(virtual_runner) -> None:
    """Public issue 30435: the event is recorded again on another stream, and the next resolve waits for nothing."""
    found = virtual_runner.job(
        "raced", fault="publish-event-recorded-off-the-forward-stream", document=seeded(SEED, 0).to_json()
    )
    (race,) = found["races"]
    assert found["divergence"]["field"] == "race"
    assert [race["first"]["writes"], race["second"]["writes"]] == [True, False]
    assert all(site.startswith("sglang/srt/managers/overlap_utils.py:") for site in sites(race))
    assert [site.rpartition(" in ")[2] for site in sites(race)] == ["publish", "resolve_seq_lens_cpu"]
    assert [race["first"]["stream"], race["second"]["stream"]] == ["the forward stream", "the schedule stream"]
    assert race["first"]["iteration"] == race["second"]["iteration"] - 1


@pytest.mark.parametrize("order", EAGER_AND_LATE)
def test_the_intact_sut_has_no_race(order: tuple[Switch, ...], virtual_runner) -> None:
    for index in range(3):
        found = virtual_runner.job("raced", fault="", document=in_order(seeded(SEED, index), order))
        assert found == {"divergence": None, "races": []}


def test_debug_assertions_run_there_too(runner_on, sut) -> None:
    runner = runner_on(sut, device="virtual", debug=True)
    tally = runner.seeded(SEED, 0, 3)
    assert [failure["line"] for failure in tally.failures] == []
    caught = runner.job("fault", fault="resolve-does-not-wait-for-publish", seed=SEED, start=0, count=1)["caught"]
    assert caught["field"] == "race"


def test_the_same_values_as_on_the_cpu(runner_on, sut, virtual_runner) -> None:
    """The draft block aside, which the CPU lane lays out itself."""
    on_cpu = runner_on(sut).job("values", seed=5, start=0, count=4)
    assert virtual_runner.job("values", seed=5, start=0, count=4) == on_cpu


def test_a_schedule_without_an_interleaving_is_as_it_was() -> None:
    old = '{"version": 1, "requests": [{"id": 3, "budget": 2}]}'
    schedule = parse(old)
    assert schedule.interleaving == ()
    assert json.loads(schedule.to_json()) == json.loads(old)
    assert seeded(SEED, 4).iterations == seeded(SEED, 4, interleaved=100).iterations
    assert seeded(SEED, 4, interleaved=100).interleaving


def test_the_simulator_is_a_library_of_its_own() -> None:
    """It imports nothing of SGLang, of schedules or of the judge, and works where none of them is."""
    code = (
        "import sys, torch\nfrom fixtures.virtual import Machine, installed\n"
        "with installed(), Machine().running(): print(torch.ones(2, device='cuda').sum().item())\n"
        "print(sorted({n for n in sys.modules if n.split('.')[0] in ('sglang', 'oracles', 'fixtures')"
        " and not n.startswith('fixtures.virtual')}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["2.0", "['fixtures']"]


SMALL = '{"version": 1, "run": {"block_size": 2, "slots": 2}, "requests": [{"id": 0, "budget": 4}, {"id": 1, "arrive": 1, "budget": 3}]}'


def test_an_intact_schedule_has_one_interleaving(virtual_runner) -> None:
    """Every order that streams and events allow gives the same: all of them are one."""
    found = virtual_runner.job("explored", document=SMALL, bound=50)
    assert found == {"interleavings": 1, "runs": 1, "complete": True, "failures": []}


def test_every_interleaving_of_a_race_is_explored_and_replays(virtual_runner) -> None:
    one = '{"version": 1, "run": {"block_size": 1, "slots": 1, "spare_pages": 0}, "requests": [{"id": 0}]}'
    fault = "publish-event-recorded-off-the-forward-stream"
    found = virtual_runner.job("explored", document=one, bound=200, fault=fault)
    assert found["complete"]
    assert found["interleavings"] == len(found["failures"]) == 2  # publish first, or resolve
    assert sorted(failure["field"] for failure in found["failures"]) == ["race", "seq_lens"]
    for failure in found["failures"]:
        again = virtual_runner.job("raced", fault=fault, document=failure.pop("document"))
        assert again["divergence"] == failure


def test_a_stall_holds_its_stream(virtual_runner) -> None:
    """The same schedules that hold a GPU's streams hold simulated ones: until somebody waits."""
    turn = Iteration(stalls=(Stall(point="before_publish", cycles=1),))
    schedule = parse(SMALL).model_copy(update={"iterations": (turn,) * 8})
    assert virtual_runner.job("raced", fault="", document=schedule.to_json())["divergence"] is None
    fault = "publish-event-recorded-off-the-forward-stream"
    assert virtual_runner.job("raced", fault=fault, document=parse(SMALL).to_json())["divergence"]["field"] == "race"
    assert virtual_runner.job("raced", fault=fault, document=schedule.to_json())["divergence"]["field"] == "seq_lens"


LOST_FENCE = Edit("sglang/srt/managers/overlap_utils.py", "            self.publish_ready.record()\n", "            pass\n")


def test_a_lost_fence_becomes_a_small_reproducer_that_needs_one_switch(broken_sut, runner_on, tmp_path) -> None:
    """Wrong values, in a drawn order with several switches: one request, two iterations and one stream late remain."""
    runner = runner_on(broken_sut(LOST_FENCE), device="virtual")
    switches = (Switch(hold=(2, 3)), Switch(at=40, hold=(1, 2)), Switch(at=90, hold=(2, 5)))
    text = in_order(seeded(SEED, 3), switches)
    runner_failure = runner.schedule(text, save=False).failures[0]
    assert runner_failure["field"].startswith("seq_lens")
    assert any(line.startswith("race: ") for line in runner_failure["history"])
    small = minimize(text, runner, 100)
    left = parse(small.text)
    assert small.complete
    assert kind_of(small.failure) == kind_of(runner_failure)
    assert small.size() == (1, 2)
    (switch,) = left.interleaving
    assert (switch.at, len(switch.hold)) == (0, 1)
    made = write_reproducer(tmp_path, small, story_of_smallest(small, runner), runner, verify=False)
    assert (made.folder / "streams.svg").is_file()
    readme = (made.folder / "README.md").read_text(encoding="utf-8")
    assert "held back: from step 0 on " in readme
    assert "in publish" in readme
    assert "in resolve_seq_lens_cpu" in readme
    assert "--device virtual" in readme

    # A race alone is there in any order: none of its own is left.
    small = minimize(in_order(seeded(SEED, 3), (Switch(at=70, hold=(6,)),)), runner, 100)
    assert small.complete
    assert small.failure["field"] == "race"
    assert parse(small.text).interleaving == ()
