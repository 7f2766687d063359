"""Parts of the generic mutants run beside each other and add up."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier

import pytest

from reports import mutants

ONE, OTHER = "f+1: one", "f+2: other"


def test_a_part_takes_nothing_back_that_another_has_found(sut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both survived before; each is caught now, in its own part, while the other part runs."""
    together = Barrier(2, timeout=30)

    class Runner:
        def __init__(self, **options: object) -> None:
            """Nothing is imported."""

        def job(self, name: str, part: str, **arguments: object) -> list[dict]:
            together.wait()
            return [{"name": {"0/2": ONE, "1/2": OTHER}[part], "noticed": "schedule"}]

        def close(self) -> None:
            """There is no process to end."""

    monkeypatch.setattr(mutants, "RunnerProcess", Runner)
    monkeypatch.setattr(mutants, "MODULES", ("m",))
    monkeypatch.setattr(mutants, "SO_FAR", tmp_path / "so_far.json")
    tried = mutants.all_mutants(sut, tmp_path, 2, 2, mutants.RUNS[:1], {"m": {ONE: "", OTHER: ""}})
    assert tried["m"] == {ONE: "schedule", OTHER: "schedule"}
