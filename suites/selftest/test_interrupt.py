"""Ctrl-C and SIGTERM end a run with exit 2 and the verdict so far."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.broken_copy import Edit
from fixtures.sut import OVERLAP_UTILS, ROOT


def interrupted(tmp_path: Path, number: signal.Signals, after: str, *words: str) -> tuple[str, dict]:
    """What a run says and writes that gets the signal when the second test has ended with `after`."""
    command = [sys.executable, "-m", "pytest", "suites/differential", "-v", "--schedules", "100000", "-k", "streams", *words]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_"))}
    with subprocess.Popen(
        [*command, "--artifacts", str(tmp_path)], cwd=ROOT, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        passed = 0
        for line in run.stdout:
            passed += after in line
            if passed == 2:
                run.send_signal(number)
                break
        rest = run.stdout.read()
    assert run.returncode == 2, rest
    return rest, json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_gives_the_verdict_so_far(number: signal.Signals, tmp_path: Path) -> None:
    rest, summary = interrupted(tmp_path, number, "PASSED")
    assert "INTERRUPTED: stopped; what follows is what was seen so far" in rest
    assert summary["verdict"] == "INTERRUPTED"
    assert summary["schedules"] >= 80


def test_a_verdict_so_far_names_what_was_found(tmp_path: Path, broken_sut) -> None:
    edit = Edit(OVERLAP_UTILS, "self.output_tokens_buf[indices] = payload", "self.output_tokens_buf[indices.flip(0)] = payload")
    rest, summary = interrupted(tmp_path, signal.SIGINT, "FAILED", "--sut", broken_sut(edit).root)
    assert "INTERRUPTED, so far DIVERGED: stopped; what follows is what was seen so far" in rest
    assert (summary["verdict"], summary["failures"][0]["verdict"]) == ("INTERRUPTED", "DIVERGED")
