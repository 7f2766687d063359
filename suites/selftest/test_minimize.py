"""What the minimizer leaves is 1-minimal, whatever it started from, and it stops when it is told to."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fixtures.broken_copy import broken_copy
from fixtures.broken_relays import BROKEN_RELAYS, RELEASE
from fixtures.draw import seeded
from fixtures.kinds import kind_of
from fixtures.neighbours import simpler
from fixtures.schedule import MAX_FILE_BYTES, Schedule, parse
from fixtures.sut import ROOT, SutError, locate
from fixtures.tally import Tally
from reports.minimize import DoesNotFail, minimize
from reports.reduction import Search, Stopped, spelled_out, to_a_fixpoint
from reports.trials import Trials

FOREVER = float("inf")


def failing(field: str, iteration: int = -1) -> dict:
    return {"verdict": "DIVERGED", "field": field, "operation": "run", "iteration": iteration, "actual": ""}


def two_long_requests_and_an_idle(schedule: Schedule) -> bool:
    long = [request for request in schedule.requests if request.budget >= 5]
    return len(long) >= 2 and any(iteration.idle for iteration in schedule.iterations)


def an_abort_of_the_third(schedule: Schedule) -> bool:
    return len(schedule.requests) >= 3 and any(schedule.requests[2].id in i.abort for i in schedule.iterations)


def a_stall_in_the_fourth_iteration(schedule: Schedule) -> bool:
    return len(schedule.iterations) >= 4 and any(stall.cycles > 70 for stall in schedule.iterations[3].stalls)


def a_narrow_table(schedule: Schedule) -> bool:
    run = schedule.run
    return run.slots >= 3 and run.vocab > 99 and not run.overlap and run.page_size * run.block_size >= 12


def a_long_pattern(schedule: Schedule) -> bool:
    return any(sum(request.accept) >= 5 and 2 in request.accept for request in schedule.requests)


def a_late_arrival(schedule: Schedule) -> bool:
    arrivals = sorted(request.arrive for request in schedule.requests)
    return len(arrivals) > 1 and arrivals[-1] - arrivals[0] >= 3 and schedule.iterations[1:2] != () and schedule.iterations[1].admit == 2


def a_copy_that_is_late_in_the_end(schedule: Schedule) -> bool:
    return any(switch.at >= 30 and 3 in switch.hold for switch in schedule.interleaving)


PREDICATES = [
    two_long_requests_and_an_idle,
    an_abort_of_the_third,
    a_stall_in_the_fourth_iteration,
    a_narrow_table,
    a_long_pattern,
    a_late_arrival,
    a_copy_that_is_late_in_the_end,
]


def everything() -> Schedule:
    """A schedule that has all of it."""
    requests = [
        {"id": 40 + 3 * i, "arrive": i, "prompt": 3 + i, "budget": 9, "accept": [1, 2, 3], "family": 1, "shared": 2} for i in range(9)
    ]
    stall = {"point": "before_stash", "cycles": 900}
    one = {"admit": 2, "result_first": True, "retract": 1, "abort": [46, 43], "idle": True, "stalls": [stall, stall]}
    run = {"overlap": False, "block_size": 7, "page_size": 5, "vocab": 4096, "slots": 6, "host_lengths": True, "salt": 99999}
    order = [{"at": 40 * i, "hold": [1, 3, 2 + i % 3]} for i in range(4)]
    whole = {"run": run, "requests": requests, "iterations": [one] * 9, "interleaving": order}
    return parse(json.dumps({"version": 1} | whole))


def search_for(predicate, schedule: Schedule, deadline: float = FOREVER) -> Search:
    def try_schedule(text: str) -> dict | None:
        return failing("x") if predicate(parse(text)) else None

    return Search(spelled_out(schedule.to_json()), failing("x"), try_schedule, deadline)


@pytest.mark.parametrize("predicate", PREDICATES, ids=lambda predicate: predicate.__name__)
def test_what_is_left_is_1_minimal(predicate) -> None:
    """Checked by a walk over the document that shares nothing with the passes."""
    search = search_for(predicate, everything())
    to_a_fixpoint(search)
    left = parse(json.dumps(search.best))
    assert predicate(left)
    assert [what for what, schedule in simpler(left) if predicate(schedule)] == []
    assert len(left.requests) <= 3
    assert len(left.iterations) <= 4


def test_the_walk_finds_what_a_pass_leaves() -> None:
    """Without its last two passes the minimizer is not 1-minimal, and the walk says so."""
    left = everything()
    found = [what for what, schedule in simpler(left) if two_long_requests_and_an_idle(schedule)]
    assert {"requests[3] taken out", "iterations[0].idle unset", "run.salt at 0 instead of 99999"} <= set(found)
    assert "run.overlap unset" in found
    assert "iterations[4].stalls[1].cycles at 450 instead of 900" in found
    assert "iterations[2].admit unset" in found
    assert not any(what.startswith("version") for what in found)


def test_another_kind_of_failure_is_not_taken() -> None:
    """Fewer requests fail too, but elsewhere."""

    def try_schedule(text: str) -> dict | None:
        return failing("x" if len(parse(text).requests) >= 4 else "y")

    search = Search(spelled_out(everything().to_json()), failing("x"), try_schedule, FOREVER)
    to_a_fixpoint(search)
    assert len(search.requests()) == 4
    assert kind_of(search.failure) == ("DIVERGED", "x", "run")


def test_each_document_is_tried_once() -> None:
    tried: list[str] = []

    def try_schedule(text: str) -> dict | None:
        tried.append(text)
        return failing("x") if two_long_requests_and_an_idle(parse(text)) else None

    to_a_fixpoint(Search(spelled_out(everything().to_json()), failing("x"), try_schedule, FOREVER))
    assert len(tried) == len(set(tried))


def test_a_large_schedule_becomes_small_in_few_trials() -> None:
    requests = tuple({"id": i, "budget": 40, "prompt": 9, "accept": [1], "arrive": i // 3} for i in range(200))
    document = {"version": 1, "requests": requests, "iterations": [{"idle": True, "abort": [7]}] * 500}
    search = search_for(two_long_requests_and_an_idle, parse(json.dumps(document)))
    to_a_fixpoint(search)
    assert (len(search.requests()), len(search.iterations())) == (2, 1)
    assert search.tried < 400


def test_time_that_is_over_leaves_the_best_so_far() -> None:
    search = search_for(two_long_requests_and_an_idle, everything(), deadline=time.monotonic() - 1)
    with pytest.raises(Stopped):
        to_a_fixpoint(search)
    assert two_long_requests_and_an_idle(parse(json.dumps(search.best)))


class Scripted:
    """A runner that judges by a predicate, and is interrupted at one trial."""

    def __init__(self, predicate, interrupt_at: int = -1, on_gpu: bool = False) -> None:
        self.predicate, self.interrupt_at, self.on_gpu, self.count = predicate, interrupt_at, on_gpu, 0

    def start(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def job(self, name: str, document: str, isolated: bool) -> dict | None:
        self.count += 1
        if self.count == self.interrupt_at:
            raise KeyboardInterrupt
        return failing("x") if self.predicate(parse(document)) else None

    def schedule(self, document: str, save: bool) -> Tally:
        """On a GPU, where a race loses every second time."""
        self.count += 1
        lost = self.count % 2 == 0 and self.predicate(parse(document))
        return Tally(failures=[failing("x")] if lost else [])


def test_an_interrupt_leaves_the_best_so_far() -> None:
    whole = minimize(everything().to_json(), Scripted(two_long_requests_and_an_idle))
    assert whole.complete
    runner = Scripted(two_long_requests_and_an_idle, interrupt_at=9)
    stopped = minimize(everything().to_json(), runner)
    assert runner.closed, "the answer to the interrupted trial would be taken for the next one's"
    assert (stopped.complete, stopped.stopped) == (False, "it was interrupted")
    assert two_long_requests_and_an_idle(parse(stopped.text))
    assert len(whole.text) < len(stopped.text) < len(everything().to_json())


def test_a_schedule_that_does_not_fail_is_said_so() -> None:
    with pytest.raises(DoesNotFail):
        minimize(everything().to_json(), Scripted(lambda schedule: False))


def test_a_race_that_needs_company_is_held_longer_and_then_made_small() -> None:
    """Alone on the GPU it shows only where the forward is late with its publish; the shortest such hold is left."""

    def late(schedule: Schedule) -> bool:
        held = [stall for turn in schedule.iterations for stall in turn.stalls]
        return len(schedule.requests) > 1 and any(stall.point == "before_publish" and stall.cycles > 1000 for stall in held)

    small = parse(minimize(everything().to_json(), Scripted(late, on_gpu=True)).text)
    assert len(small.requests) == 2
    assert [[(stall.point, stall.cycles) for stall in turn.stalls] for turn in small.iterations] == [[("before_publish", 1001)]]


# -- real SGLang ------------------------------------------------------------------------------------------


@pytest.fixture
def broken_relay(tmp_path: Path):
    """A broken copy by name; skipped where the release that it is made from is not on this machine."""

    def build(name: str):
        try:
            intact = locate(RELEASE)
        except SutError as error:
            pytest.skip(str(error))
        return locate(str(broken_copy(Path(intact.root), tmp_path / name, [BROKEN_RELAYS[name].edit])))

    return build


@pytest.mark.parametrize("name", ["stash-reversed", "synchronous-merge-swaps-bonus", "publish-dies-on-two"])
def test_failures_of_a_broken_relay_become_1_minimal(name: str, broken_relay, runner_on) -> None:
    runner = runner_on(broken_relay(name))
    runner.start()
    trials = Trials(runner)
    drawn = (seeded(1, index).to_json() for index in range(50))
    found = next(text for text in drawn if (trials(text) or {}).get("field") == BROKEN_RELAYS[name].field)
    small = minimize(found, runner)
    assert small.complete
    requests, iterations = small.size()
    assert requests <= 2
    assert iterations <= 4
    again = Trials(runner)
    assert kind_of(again.first(small.text)) == kind_of(small.failure)
    for what, schedule in simpler(parse(small.text)):
        failure = again(schedule.to_json())
        assert failure is None or kind_of(failure) != kind_of(small.failure), what


# -- files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"version": 1, "requests": [{"id": 1', "document: not JSON"),
        ('{"version": 2}', "version: '2' is not known"),
        ('{"version": 1, "iterations": [{"abort": ["__import__(\'os\').abort()"]}]}', "iterations[0].abort[0]: "),
        ('{"version": 1, "run": {"slots": 1e9}}', "run.slots: "),
        ("[" * 100_000, "document: not JSON"),
        (" " * (MAX_FILE_BYTES + 1), f"at most {MAX_FILE_BYTES} are read"),
        (None, "cannot be read"),
    ],
    ids=["truncated", "version", "hostile", "float", "deep", "huge", "absent"],
)
def test_a_file_that_is_no_schedule_is_refused_before_torch_is_loaded(text: str | None, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "schedule.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    code = (
        "import sys\nfrom reports.minimize import main\ncode = main(sys.argv[1:])\n"
        "assert not {'torch', 'sglang'} & set(sys.modules), 'loaded for nothing'\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
