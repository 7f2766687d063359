"""Ctrl-C ends a run with exit 2 and the verdict so far."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from fixtures.sut import ROOT


def test_ctrl_c_prints_the_verdict_so_far(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "suites/differential", "-v", "--schedules", "100000", "-k", "streams"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_"))}
    with subprocess.Popen(
        [*command, "--artifacts", str(tmp_path)], cwd=ROOT, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        passed = 0
        for line in run.stdout:
            passed += "PASSED" in line
            if passed == 2:
                run.send_signal(signal.SIGINT)
                break
        rest = run.stdout.read()
    assert run.returncode == 2, rest
    assert "INTERRUPTED: stopped; what follows is what was seen so far" in rest
    summary = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert summary["verdict"] == "INTERRUPTED"
    assert summary["schedules"] >= 80
