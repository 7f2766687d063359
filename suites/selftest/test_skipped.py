"""A run in which nothing could run says SKIPPED, writes its summary and passes."""

from __future__ import annotations

import json


def test_nothing_to_run_is_said_so(run_suite) -> None:
    ran = run_suite(suites="suites/races/test_sanitizer.py")
    assert ran.code == 0, ran.text
    assert "SKIPPED: nothing could run here" in ran.text
    assert "needs a GPU: --device cuda" in ran.text
    summary = json.loads((ran.artifacts / "summary.json").read_text(encoding="utf-8"))
    assert summary["verdict"] == "SKIPPED"
