"""A copy of SGLang with one line of its relay broken by hand ends in DIVERGED, named and replayable."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from fixtures.broken_copy import Edit
from fixtures.sut import DRAFT_INPUT, OVERLAP_UTILS

BREAKS = {
    "stash writes the rows in reverse": (
        Edit(OVERLAP_UTILS, "self.output_tokens_buf[indices] = payload", "self.output_tokens_buf[indices.flip(0)] = payload"),
        "bonus_tokens",
    ),
    "filter forgets the future indices": (
        Edit(DRAFT_INPUT, "self.future_indices = self.future_indices[new_indices]", "pass"),
        "future_indices",
    ),
    "publish is one token short": (
        Edit(OVERLAP_UTILS, "= new_seq_lens.to(\n", "= (new_seq_lens - 1).to(\n"),
        "seq_lens",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_break_is_named_and_replays(name: str, broken_sut, runner_on, sut) -> None:
    edit, field = BREAKS[name]
    broken = runner_on(broken_sut(edit))
    failures = broken.seeded(seed=1, start=0, count=20).failures
    assert failures, "twenty schedules are enough for a fault as coarse as this"
    first = failures[0]
    assert (first["verdict"], first["field"]) == ("DIVERGED", field)
    assert min(first["iteration"], first["request"], first["slot"]) >= 0
    assert first["expected"] != first["actual"]
    assert first["history"], "the operations that touched the slot are named"
    document = Path(first["schedule"]).read_text(encoding="utf-8")
    again = broken.schedule(document).failures
    assert [failure["line"] for failure in again] == [first["line"]]
    assert runner_on(sut).schedule(document).failures == []


def test_schedules_of_one_kind_are_kept_up_to_a_limit(broken_sut, runner_on, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every one is counted; the note of what was running goes when the runner is closed."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "5")
    runner = runner_on(broken_sut(BREAKS["publish is one token short"][0]))
    failures = runner.seeded(seed=1, start=0, count=30).failures
    kinds = Counter((failure["field"], failure["operation"]) for failure in failures)
    kept = Counter((failure["field"], failure["operation"]) for failure in failures if "schedule" in failure)
    assert max(kinds.values()) > 5
    assert kept == {kind: min(count, 5) for kind, count in kinds.items()}
    assert len(list((runner.artifacts / "failures").iterdir())) == sum(kept.values())
    running = runner.artifacts / "running"
    assert len(list(running.iterdir())) == 1
    runner.close()
    assert list(running.iterdir()) == []


def test_a_run_on_a_broken_copy_says_so(broken_sut, run_suite) -> None:
    edit, _ = BREAKS["stash writes the rows in reverse"]
    broken = broken_sut(edit)
    ran = run_suite("--sut", broken.root, "--schedules", "25", "-k", "streams and release")
    assert ran.code == 1, ran.text
    assert "DIVERGED: the SUT does not do what the old relay did" in ran.text
    changed = f"changed from {broken.release}: srt/managers/overlap_utils.py"
    assert " ".join(ran.text.split()).count(changed) == 2, "in the header, and in the verdict"
    line = re.search(
        r"diverged     (iteration \d+, request \d+, slot \d+: bonus_tokens after resolve inputs: expected \d+, got \d+)", ran.text
    )
    assert line, ran.text
    schedule = Path(re.search(r"replay: tox -e replay -- (\S+)", ran.text)[1])
    kept = json.loads(schedule.with_name("divergence.json").read_text(encoding="utf-8"))
    assert kept["divergence"]["line"] == line[1]
    summary = json.loads((ran.artifacts / "summary.json").read_text(encoding="utf-8"))
    assert (summary["verdict"], summary["changed"]) == ("DIVERGED", ["srt/managers/overlap_utils.py"])
    again = run_suite("--sut", broken.root, "--replay", str(schedule))
    assert again.code == 1
    assert line[1] in again.text
