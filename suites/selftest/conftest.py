"""Fixtures of the project's own tests: broken copies of SGLang, and the suite run as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fixtures.broken_copy import Edit, broken_copy
from fixtures.runner_process import RunnerProcess
from fixtures.sut import ROOT, Sut, locate


@dataclass
class Ran:
    """One run of the suite: its exit code and everything it printed."""

    code: int
    text: str
    artifacts: Path


@pytest.fixture
def run_suite(tmp_path: Path):
    """Run pytest on the suite in a process of its own, as `tox` does."""

    def run(*words: str, suites: str = "suites/differential", **environment: str) -> Ran:
        artifacts = tmp_path / "artifacts"
        command = [sys.executable, "-m", "pytest", suites, "--artifacts", str(artifacts), *words]
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_"))}
        done = subprocess.run(
            command, cwd=ROOT, env=clean | environment, capture_output=True, text=True, timeout=600, check=False
        )
        return Ran(done.returncode, done.stdout + done.stderr, artifacts)

    return run


@pytest.fixture
def broken_sut(sut: Sut, tmp_path: Path):
    """A copy of the SUT with edits, located as `--sut PATH` locates it."""

    def build(*edits: Edit) -> Sut:
        return locate(str(broken_copy(Path(sut.root), tmp_path / "broken", list(edits))))

    return build


@pytest.fixture
def runner_on(tmp_path: Path):
    """A runner on any SUT, closed at the end of the test."""
    opened: list[RunnerProcess] = []

    def start(sut: Sut, **options: object) -> RunnerProcess:
        runner = RunnerProcess(sut=sut, artifacts=tmp_path / "artifacts", **{"device": "cpu"} | options)
        opened.append(runner)
        return runner

    yield start
    for runner in opened:
        runner.close()
