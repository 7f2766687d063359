"""The scheduler level is awake: what SGLang's own scheduler or worker does wrong shows, and nothing that is right does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.broken_copy import Edit
from fixtures.draw import SHAPES, SMALL, seeded
from fixtures.neighbours import simpler
from fixtures.sut import OVERLAP_UTILS
from reports.minimize import minimize
from reports.reproducer import story_of_smallest, write_reproducer

SCHEDULER = "sglang/srt/managers/scheduler.py"
WORKER = "sglang/srt/speculative/dflash_worker_v2.py"
NGRAM_WORKER = "sglang/srt/speculative/ngram_worker.py"


@pytest.fixture
def scheduler_on(runner_on):
    return lambda sut, **options: runner_on(sut, level="scheduler", **options)


@pytest.mark.parametrize(("prebuilt", "count"), [(0, 150), (100, 80)])
def test_every_part_of_a_schedule_can_be_taken_out(prebuilt: int, count: int, runner_for) -> None:
    """What is one step simpler runs as well, and everything balances; with and without requests that come prefilled."""
    runner = runner_for("release", "scheduler")
    ran, parts = 0, 3
    for index in range(parts):
        for what, neighbour in simpler(seeded(5, index, replace(SMALL, prebuilt=prebuilt))):
            failures = runner.schedule(neighbour.to_json(), save=False).failures
            assert failures == [], f"schedule {index}, {what}: {failures[0]['line']}"
            ran += 1
            if ran == count * (index + 1) // parts:
                break
    assert ran == count


def test_the_same_seed_gives_the_same_counts(runner_for) -> None:
    runner = runner_for("release", "scheduler")
    first, second = (runner.seeded(3, 0, 20).to_dict() | {"shares": {}} for _ in range(2))
    assert first == second
    assert first["iterations"] > 300


def test_what_is_not_listed_is_named(broken_sut, scheduler_on) -> None:
    """A scheduler that reads something new of itself stops with the name of it."""
    sut = broken_sut(Edit(SCHEDULER, "        self.forward_ct += 1\n", "        self.forward_ct += 1\n        self.new_in_this_release\n"))
    failure = scheduler_on(sut).seeded(1, 0, 1).failures[0]
    assert (failure["verdict"], failure["field"]) == ("ERROR", "exception")
    assert "new_in_this_release" in failure["line"]


def test_rows_of_nobody_are_named(runner_for) -> None:
    """A filter that forgets the future indices makes the scheduler's batch as long as before."""
    runner = runner_for("release", "scheduler")
    tried = runner.job("fault", fault="filter-forgets-the-future-indices", seed=1, start=0, count=20)
    assert (tried["caught"]["verdict"], tried["caught"]["field"]) == ("DIVERGED", "future_indices")


def test_a_slot_that_is_not_given_back_is_off_balance(broken_sut, scheduler_on) -> None:
    lost = Edit("sglang/srt/mem_cache/memory_pool.py", "        self.free_slots.extend(indices)\n", "        self.free_slots.extend(indices[1:])\n")
    failures = scheduler_on(broken_sut(lost)).seeded(1, 0, 4).failures
    assert {failure["field"] for failure in failures} <= {"books", "exception"}
    assert all("slots" in failure["line"] or "no progress" in failure["line"] for failure in failures)
    assert any(failure["field"] == "books" for failure in failures)


def test_falling_back_from_triton_is_off_balance(broken_sut, scheduler_on) -> None:
    """The worker catches what its kernel raises and goes on eagerly; the run must not pass for one with kernels."""
    refused = Edit(
        WORKER,
        "            if self._use_triton_accept_bonus:\n                try:\n",
        "            if self._use_triton_accept_bonus:\n                try:\n                    raise RuntimeError('no kernel')\n",
    )
    failures = scheduler_on(broken_sut(refused), launches=True).seeded(1, 0, 1).failures
    assert failures
    assert all("fell back from Triton" in failure["line"] for failure in failures), failures[0]["line"]


def test_a_worker_that_splices_once_has_no_finding(broken_sut, runner_for, scheduler_on) -> None:
    """What `known.json` says of n-gram's look-up is all that differs there: told by the lengths that a result is processed, it is right."""
    once = Edit(
        NGRAM_WORKER,
        "            self.prev_accept_lens = prev_accept_lens.tolist()\n",
        "            held = zip(base_lens, batch.seq_lens_cpu.tolist(), prev_accept_lens.tolist())\n"
        "            self.prev_accept_lens = [0 if known == length + 1 else count for known, length, count in held]\n",
    )

    def lines(runner) -> list[str]:
        documents = (seeded(1, index, SHAPES["ngram"]).to_json() for index in range(12))
        seen = [runner.job("less_kind", document=document, conditions={"spliced_once": False}) for document in documents]
        return [each["divergence"]["line"] for each in seen if each["divergence"]]

    assert lines(scheduler_on(broken_sut(once))) == []
    assert len(lines(runner_for("release", "scheduler"))) >= 6


def test_a_check_whose_schedule_goes_wrong_in_another_way_says_so_in_one_line(broken_sut, run_suite) -> None:
    """A token in the wrong row says nothing of the room that a prompt's chunk finds."""
    turned = Edit(OVERLAP_UTILS, "self.output_tokens_buf[indices] = payload", "self.output_tokens_buf[indices.flip(0)] = payload")
    ran = run_suite("--level", "scheduler", "--sut", broken_sut(turned).root, suites="suites/scheduler/test_chunk_room.py")
    (said,) = [line for line in ran.text.splitlines() if line.endswith(": the check of chunk room could not be made")]
    assert "::test_a_prompts_next_chunk_finds_room_or_waits: DIVERGED iteration 1: input_ids after resolve inputs: expected" in said
    assert "Error" not in ran.text
    assert ran.code == 1


def test_a_failure_is_minimized_and_replays(broken_sut, scheduler_on, tmp_path) -> None:
    """Slots out of step with requests, as only a scheduler can make them: smaller at this level, with a script that replays it."""
    batch = "sglang/srt/managers/schedule_batch.py"
    turned = Edit(
        batch,
        "            [self.req_pool_indices, other.req_pool_indices]\n",
        "            [other.req_pool_indices, self.req_pool_indices]\n",
    )
    runner = scheduler_on(broken_sut(turned))
    minimized = minimize(seeded(1, 1).to_json(), runner, 60)
    assert minimized.size()[0] <= 4
    made = write_reproducer(tmp_path / "reproducers", minimized, story_of_smallest(minimized, runner), runner)
    assert not made.flat
    assert made.outcome.on_sut == 1
    assert "--level scheduler" in (made.folder / "README.md").read_text()
