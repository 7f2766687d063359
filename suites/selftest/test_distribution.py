"""Checks that need a special runner share a worker, so that it is started once."""

from __future__ import annotations

import ast

import pytest

from fixtures.distribution import scope_of
from fixtures.sut import ROOT

SUITES = [path for path in sorted((ROOT / "suites").glob("*/test_*.py")) if path.parent.name != "selftest"]
STARTS = ("virtual_runner", "scheduler_virtual_runner")


def _on_simulated_streams(check: ast.FunctionDef) -> bool:
    calls = [node for node in ast.walk(check) if isinstance(node, ast.Call) and ast.unparse(node.func) == "runner_for"]
    asked = {argument.arg for argument in check.args.args} | {call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant)}
    return bool(asked & {"virtual", *STARTS})


@pytest.mark.parametrize("file", SUITES, ids=lambda path: path.stem)
def test_what_runs_on_simulated_streams_shares_a_worker(file) -> None:
    checks = [node for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)]
    apart = [
        check.name
        for check in checks
        if check.name.startswith("test_") and _on_simulated_streams(check)
        and not scope_of(f"{file.relative_to(ROOT)}::{check.name}", 2).startswith("races ")
    ]
    assert apart == []
