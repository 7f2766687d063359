"""Two ranks beside each other are awake: they show what each of them alone does not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from fixtures.artifacts import mode_name, save_failure
from fixtures.broken_copy import Edit
from fixtures.draw import seeded
from fixtures.faults import CATALOGUE
from fixtures.faults.fault import Fault
from fixtures.judge import DIVERGED, RANKS
from fixtures.kinds import kind_of
from fixtures.lane import gpu_of, interleaved
from fixtures.neighbours import simpler
from fixtures.ranks import FORWARD_STREAM, LATE, as_run_by, disagreement
from fixtures.runner_process import NotStarted, RunnerFailed
from fixtures.schedule import Schedule, Switch, load, parse
from reports import minimize as minimizer
from reports.fault_matrix import by_ranks
from reports.minimize import DoesNotFail, minimize
from reports.reproduce import reproduce_run
from reports.trials import RankTrials

SEED, WITHIN = 1, 24
ON_STREAMS, STALLED = 4, 50  # schedules; percent of iterations
FAULTS = [fault for fault in CATALOGUE.values() if fault.seen_in == "ranks"]
LOOKS_AT_THE_DEVICE = Edit(
    "sglang/srt/managers/scheduler.py",
    "        self.process_pending_chunked_abort()\n",
    "        self.process_pending_chunked_abort()\n        if not self.forward_stream.query():\n            self.waiting_queue.reverse()\n",
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_only_ranks_show_what_depends_on_the_process(fault: Fault, runner_for, stalls: int) -> None:
    ranks = [runner_for(kind, "scheduler") for kind in ("release", "other_rank")]
    for runner in ranks:
        assert runner.job("fault", fault=fault.name, seed=SEED, start=0, count=WITHIN)["caught"] is None, "the oracle saw it"
    arguments = {"seed": SEED, "start": 0, "count": WITHIN, "stalls": stalls}
    digests = [runner.job("planted", fault=fault.name, job="digests", arguments=arguments) for runner in ranks]
    different = [index for index in range(WITHIN) if digests[0][index] != digests[1][index]]
    assert different
    document = seeded(SEED, different[0], stalls=stalls, interleaved=interleaved(ranks[0].device)).to_json()
    seen = [runner.job("planted", fault=fault.name, job="seen", arguments={"document": document}) for runner in ranks]
    found = disagreement(*seen)
    assert found.verdict == RANKS
    assert found.iteration >= 0
    assert "rank 0 got" in found.line()
    assert "rank 1 got" in found.line()


@pytest.mark.parametrize("kind", ["virtual", pytest.param("cuda", marks=pytest.mark.cuda)])
def test_ranks_show_a_choice_that_depends_on_how_far_a_stream_is(kind: str, broken_sut, runner_on) -> None:
    """Waiting requests change places while the forward runs: each rank alone is right, and rank 1's forwards take longer."""
    broken = broken_sut(LOOKS_AT_THE_DEVICE)
    devices = [kind if kind == "virtual" else gpu_of(0, rank, torch.cuda.device_count()) for rank in (0, 1)]
    ranks = [runner_on(broken, device=device, level="scheduler", rank=rank) for rank, device in enumerate(devices)]
    for runner in ranks:
        assert [failure["line"] for failure in runner.seeded(SEED, 0, ON_STREAMS, stalls=STALLED).failures] == []
    failures = ranks[0].beside(ranks[1], SEED, 0, ON_STREAMS, STALLED).failures
    assert {failure["verdict"] for failure in failures} == {RANKS}
    kept = [load(failure["schedule"]) for failure in failures]
    assert all(any(turn.stalls for turn in schedule.iterations) for schedule in kept), "they replay with their stalls"
    assert any(ranks[0].apart(ranks[1], schedule.to_json()) for schedule in kept)


def test_ranks_are_stalled_unlike_each_other() -> None:
    """Rank 0 never; and what is not about streams stays the same on both."""
    drawn = seeded(SEED, 0, stalls=STALLED, interleaved=100)
    points = [[stall.point for stall in turn.stalls] for turn in drawn.iterations]
    assert sum(map(len, points)) > 3
    for device in ("cpu", "virtual", "cuda:1"):
        zero, one = (as_run_by(rank, drawn, device) for rank in (0, 1))
        assert [turn.stalls for turn in zero.iterations] == [()] * len(drawn.iterations)
        assert [[stall.point for stall in turn.stalls] for turn in one.iterations] == points
        if device == "cuda:1":
            assert all(stall.cycles >= LATE for turn in one.iterations for stall in turn.stalls), "its forward outlasts the host's iteration"
        assert one.interleaving == ((Switch(hold=(FORWARD_STREAM,)),) if device == "virtual" else drawn.interleaving)
        calm = seeded(SEED, 0, interleaved=100)
        assert zero == calm
        assert (one.run, one.requests) == (calm.run, calm.requests)


def test_each_rank_has_a_gpu_of_its_own_where_there_are_enough() -> None:
    assert [gpu_of(0, rank, 2) for rank in (0, 1)] == ["cuda:0", "cuda:1"]
    assert [gpu_of(0, rank, 8) for rank in (0, 1)] == ["cuda:0", "cuda:1"]
    assert [gpu_of(0, rank, 1) for rank in (0, 1)] == ["cuda:0", "cuda:0"]
    for worker in range(16):
        assert gpu_of(worker, 0, 2) != gpu_of(worker, 1, 2)
    assert sorted(gpu_of(worker, 0, 4) for worker in range(4)) == [f"cuda:{number}" for number in range(4)]


def test_a_value_that_differs_is_named_with_its_request() -> None:
    zero = {
        "entries": [[4, "decode", [7, 2], [3, 5]]],
        "marks": [[0, "bonus_tokens", "torch.int64", [2]]],
        "values": [[11, 71]],
        "streams": {},
        "books": [],
        "stopped": "",
    }
    assert disagreement(zero, zero) is None
    found = disagreement(zero, zero | {"values": [[11, 13]]})
    assert found.line() == "iteration 4, request 2, slot 5: bonus_tokens after resolve inputs: rank 0 got 71, rank 1 got 13"
    swapped = disagreement(zero, zero | {"entries": [[4, "decode", [2, 7], [5, 3]]]})
    assert (swapped.verdict, swapped.field, swapped.iteration) == (RANKS, "batch", 4)


@pytest.mark.parametrize("requests", [1, 3])
def test_a_value_of_the_whole_batch_names_no_request(requests: int) -> None:
    zero = {
        "entries": [[4, "decode", [7, 2, 9][:requests], [3, 5, 1][:requests]]],
        "marks": [[0, "seq_lens_sum", "torch.int64", [1]]],
        "values": [[11]],
        "streams": {},
        "books": [],
        "stopped": "",
    }
    found = disagreement(zero, zero | {"values": [[13]]})
    assert found.line() == "iteration 4: seq_lens_sum after resolve lengths: rank 0 got 11, rank 1 got 13"


def test_a_fault_that_kills_a_rank_is_a_cell_of_the_matrix(broken_sut, tmp_path) -> None:
    """The table says what ended it, and the faults after it are tried."""
    edit = LOOKS_AT_THE_DEVICE._replace(new=LOOKS_AT_THE_DEVICE.old + "        import os; os._exit(3)\n")
    cells = by_ranks(broken_sut(edit), tmp_path, FAULTS[:2])
    assert [(name, cell["caught"]) for name, _, cell in cells] == [(fault.name, True) for fault in FAULTS[:2]]
    assert all("the process ended (exit status 3)" in cell["by"] for _, _, cell in cells)


# -- made small -------------------------------------------------------------------------------------------

NOTHING = {"entries": [], "marks": [], "values": [], "streams": {}, "books": [], "stopped": ""}


class Planted:
    """A runner with a fault in place for every job."""

    def __init__(self, runner, fault: str) -> None:
        self.runner, self.fault = runner, fault

    def __getattr__(self, name: str) -> object:
        return getattr(self.runner, name)

    def job(self, name: str, **arguments: object) -> object:
        return self.runner.job("planted", fault=self.fault, job=name, arguments=arguments)


class Scripted:
    """A rank whose jobs end as `answers` says, one after the other: what it saw, or an error."""

    on_gpu = False

    def __init__(self, *answers: object) -> None:
        self.answers, self.isolated = iter(answers), []

    def job(self, name: str, document: str, isolated: bool) -> dict:
        self.isolated.append(isolated)
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_what_two_ranks_show_becomes_1_minimal(fault: Fault, runner_for) -> None:
    ranks = [Planted(runner_for(kind, "scheduler"), fault.name) for kind in ("release", "other_rank")]
    trials = RankTrials(*ranks)
    drawn = (seeded(SEED, index).to_json() for index in range(WITHIN))
    text, found = next((text, failure) for text in drawn if (failure := trials.first(text)))
    small = minimize(text, ranks[0], other=ranks[1])
    assert small.complete
    assert small.before == (len(parse(text).requests), found["iteration"] + 1)
    assert small.size()[0] <= 3 < small.before[0]
    assert small.size()[1] <= 4
    assert kind_of(small.failure) == kind_of(found) == (RANKS, "batch", "scheduling")
    assert trials.first(small.text) == small.failure, "what is kept shows it"
    for what, schedule in simpler(parse(small.text)):
        failure = trials(schedule.to_json())
        assert failure is None or kind_of(failure) != kind_of(small.failure), what


def test_a_rank_that_dies_is_no_difference_between_two() -> None:
    """Then each schedule has a fork of its own; what cannot be started is not passed over, and the first schedule must come back."""
    zero, one = Scripted(NOTHING, NOTHING, NOTHING, NOTHING), Scripted(RunnerFailed("died"), NOTHING, NOTHING | {"books": ["x"]}, NotStarted("gone"))
    trials = RankTrials(zero, one)
    assert [trials("a"), trials("b"), trials("c")["field"]] == [None, None, "books"]
    assert zero.isolated == one.isolated == [False, True, True]
    with pytest.raises(NotStarted):
        trials("d")
    with pytest.raises(RunnerFailed):
        RankTrials(Scripted(RunnerFailed("died")), Scripted()).first("a")


@pytest.mark.parametrize(
    ("level", "of_ranks", "tried"), [("relay", True, "1"), ("scheduler", False, "12"), ("scheduler", True, "2")], ids=["relay", "one first", "two"]
)
def test_what_shows_nothing_on_one_rank_is_minimized_on_two(level: str, of_ranks: bool, tried: str, monkeypatch) -> None:
    asked = []
    other = SimpleNamespace(close=lambda: asked.append("closed"))

    def on(text: str, runner: object, seconds: float, progress: object, other: object = None) -> str:
        asked.append("1" if other is None else "2")
        if other is None:
            raise DoesNotFail
        return "small"

    monkeypatch.setattr(minimizer, "minimize", on)
    runner = SimpleNamespace(level=level, other_rank=lambda: other)
    if level == "relay":
        with pytest.raises(DoesNotFail):
            minimizer._smallest("text", runner, 1, of_ranks)
    else:
        assert minimizer._smallest("text", runner, 1, of_ranks) == "small"
        assert asked.pop() == "closed"
    assert "".join(asked) == tried


def test_a_failure_of_two_ranks_has_its_reproducer(broken_sut, tmp_path) -> None:
    """One folder for two schedules; its script tells the build from the intact release. What shows only after others is named."""
    step = LOOKS_AT_THE_DEVICE.old
    sut = broken_sut(LOOKS_AT_THE_DEVICE._replace(new=step + "        self.waiting_queue.sort(key=lambda req: hash(req.rid))\n"))
    mode = mode_name("cpu", False, "", level="scheduler")
    failure = {"verdict": RANKS, "field": "batch", "operation": "scheduling", "actual": ""}
    for index in (5, 1):
        save_failure(tmp_path, seeded(SEED, index).to_json(), failure, sut.to_dict(), mode)
    save_failure(tmp_path, Schedule().to_json(), failure | {"field": "transcript", "operation": "run"}, sut.to_dict(), mode)
    (made,) = reproduce_run(tmp_path, None, "cpu", 60)
    assert (made.flat, made.outcome.on_sut, made.outcome.on_intact) == (False, 1, 0)
    assert made.failure["verdict"] == RANKS
    assert len(load(made.folder / "schedule.json").requests) == 2
    names = ["README.md", "divergence.json", "reproduce.py", "schedule.json", "timeline.svg"]
    assert sorted(file.name for file in made.folder.iterdir()) == names
    text = (made.folder / "README.md").read_text(encoding="utf-8")
    for part in ("**What happens on rank 0**", " requests x ", "rank 1 `", "it takes two ranks", "`tox -e replay -- schedule.json"):
        assert part in text


def test_what_ranks_differ_in_is_kept_beside_what_one_of_them_does(tmp_path) -> None:
    """One schedule can show both, and neither is to take the other's place."""
    text = Schedule().to_json()
    alone, together = (save_failure(tmp_path, text, {"verdict": verdict}, {}, "release mode") for verdict in (DIVERGED, RANKS))
    assert alone != together
    assert alone.read_text() == together.read_text() == text
