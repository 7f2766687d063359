"""A SUT that raises, dies or hangs is an ERROR for the schedule it happened in; the others go on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.broken_copy import Edit
from fixtures.sut import OVERLAP_UTILS, ROOT

PUBLISH = "        indices = future_indices\n        if indices.shape[0] == 0:\n            return  # DP idle\n"
KERNELS = "sglang/kernels/ops/speculative/dflash.py"
PICKS = "def _pick_num_warps(block_size: int) -> int:\n"
RARELY = "        if indices.shape[0] >= 4 and int(new_seq_lens.sum()) % 7 == 3:\n            "


def misbehaving(action: str) -> Edit:
    """A publish that does `action` now and then."""
    return Edit(OVERLAP_UTILS, PUBLISH, PUBLISH + RARELY + action + "\n")


@pytest.mark.parametrize(
    ("action", "field"),
    [
        ("raise RuntimeError('no room')", "exception"),
        ("raise KeyboardInterrupt", "exception"),
        ("raise SystemExit(0)", "exception"),
        ("import os; os._exit(9)", "process"),
        ("while True: pass", "process"),
    ],
    ids=["raises", "interrupts", "exits", "dies", "hangs"],
)
def test_misbehaviour_is_contained(action: str, field: str, broken_sut, runner_on) -> None:
    runner = runner_on(broken_sut(misbehaving(action)), hang_limit=4.0)
    tally = runner.seeded(seed=7, start=0, count=4)
    assert tally.schedules == 4
    assert 0 < len(tally.failures) < 4, "some schedules reach the fault, others do not"
    assert {(failure["verdict"], failure["field"]) for failure in tally.failures} == {("ERROR", field)}
    for failure in tally.failures:
        assert Path(failure["schedule"]).is_file()
        if "_exit(9)" in action:
            assert failure["line"] == "the run did not finish: the process ended (exit status 9)"
            assert Path(failure["log"]).is_file()


DYING = "import os; os._exit(0)\n"


def test_what_a_sut_says_is_escaped_where_it_enters(broken_sut, run_suite) -> None:
    """Half a surrogate pair, colours and line breaks, in a message and in a class's name."""
    action = r"raise type('Odd\x1b', (Exception,), {})('half \ud800, \x1b[31mred\x1b[0m\x00\nsecond line')"
    ran = run_suite("--sut", broken_sut(misbehaving(action)).root, "--schedules", "40", "-k", "streams and release")
    assert ran.code == 1, ran.text
    assert "INTERNALERROR" not in ran.text
    assert r"got Odd\x1b: half \ud800, \x1b[31mred\x1b[0m\x00 (" in ran.text
    assert (ran.artifacts / "report.html").is_file()
    for text in (ran.text, *(file.read_text(encoding="utf-8") for file in ran.artifacts.glob("*.*"))):
        assert {character for character in text if not character.isprintable()} <= {"\n"}


def test_sut_that_ends_the_process_that_runs_its_kernels(broken_sut, run_suite) -> None:
    words = ("-k", "every_batch_size and (1 or 2)")
    broken = broken_sut(Edit(KERNELS, PICKS, PICKS + "    " + DYING))
    ran = run_suite("--sut", broken.root, *words, suites="suites/kernels/test_accept_bonus.py")
    assert ran.code == 1, ran.text
    assert "ERROR: the SUT raised, hung or died" in ran.text
    assert "the process ended (exit status 0)" in ran.text


def test_whatever_ends_the_process_it_does_not_exit_0(tmp_path: Path) -> None:
    code = (
        "import os, pytest\n"
        "class Ends:\n"
        "    def pytest_runtest_call(self, item):\n"
        "        os._exit(0)\n"
        f"pytest.main(['suites/dtype', '--artifacts', {str(tmp_path)!r}], plugins=[Ends()])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ERROR: something ended this process before there was a verdict" in done.stdout + done.stderr


@pytest.mark.parametrize("suite", ["dtype", "kernels"])
def test_sut_that_cannot_be_started_is_an_error_and_said_once(suite: str, broken_sut, run_suite) -> None:
    edit = Edit("sglang/__init__.py", '"""SGLang public API."""\n', DYING)
    ran = run_suite("--sut", broken_sut(edit).root, suites=f"suites/{suite}")
    assert ran.code == 1, ran.text
    assert "ERROR: the SUT raised, hung or died" in ran.text
    assert len(re.findall("^error .*SGLang could not be started: the process ended", ran.text, re.MULTILINE)) == 1
    assert f"{suite}: not run, since SGLang could not be started" in ran.text


def test_sut_that_cannot_be_imported_is_said_so(broken_sut, run_suite) -> None:
    broken = broken_sut(Edit(OVERLAP_UTILS, "import torch\n", "import torch\nimport nothing_like_this\n"))
    ran = run_suite("--sut", broken.root, "--schedules", "5", "-k", "streams and release")
    assert ran.code == 1
    assert "ERROR: the SUT raised, hung or died" in ran.text
    assert "No module named 'nothing_like_this'" in ran.text


@pytest.mark.cuda
def test_a_lost_cuda_context_costs_one_schedule(broken_sut, runner_on, device: str) -> None:
    """A device-side assertion ends all use of its context: the runner is replaced, and the rest goes on."""
    runner = runner_on(broken_sut(misbehaving("torch._assert_async(torch.zeros((), device=indices.device))")), device=device)
    tally = runner.seeded(seed=3, start=0, count=4)
    assert tally.schedules == 4
    assert 0 < len(tally.failures) < 4, "some schedules reach the fault, others do not"
    assert {(failure["verdict"], failure["field"]) for failure in tally.failures} == {("ERROR", "process")}
    assert all("the CUDA context was lost" in failure["line"] for failure in tally.failures)
