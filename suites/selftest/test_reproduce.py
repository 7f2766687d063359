"""`tox -e reproduce` says which of its folders to open first, and why the others are there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures.artifacts import save_failure
from reports import reproduce
from reports.checked_script import NOT_RUN, Outcome
from reports.reproducer import Reproducer, folder_name
from reports.which_first import listed

SHOWN = Outcome(1, 0)


def reproducer(call: str, field: str = "bonus_tokens", operation: str = "resolve inputs", verdict: str = "DIVERGED", **changes: object) -> Reproducer:
    key = (verdict, field, operation, call)
    facts = {"iterations": 2, "flat": call not in ("scheduler", "check", "ranks"), "lines": 20, "outcome": SHOWN}
    return Reproducer(Path(folder_name(key)), {"line": "what differs"}, key=key, **facts | changes)


def test_a_short_flat_script_that_shows_it_is_opened_first() -> None:
    made = [
        reproducer("scheduler", iterations=1),
        reproducer("publish", iterations=1, outcome=NOT_RUN),
        reproducer("check", "test_relay_keeps_ids", "dtype", iterations=0),
        reproducer("filter", iterations=3),
        reproducer("stash"),
        reproducer("scheduler", "input_ids"),
        reproducer("start"),
        reproducer("ranks", "batch", "scheduling", verdict="RANKS DIVERGED"),
    ]
    assert listed(made[::-1]) == listed(made)
    assert listed([*made[:-2], made[-1]]) == [
        "open first   bonus_tokens-after-resolve_inputs-from-stash: a flat script, exited 1 on this build, 0 on the intact release; what differs",
        "also         bonus_tokens-after-resolve_inputs-from-filter: the same, and the first call that goes wrong is filter, not stash",
        "also         bonus_tokens-after-resolve_inputs-from-scheduler: the same with SGLang's own scheduler around the relay",
        "also         batch-after-scheduling-from-ranks: two ranks that differ in batch after scheduling",
        "also         input_ids-after-resolve_inputs-from-scheduler: another difference, input_ids after resolve inputs with SGLang's own scheduler around the relay",
        "also         test_relay_keeps_ids-after-dtype-from-check: a check that fails, and no schedule stands for it: test_relay_keeps_ids",
        "also         bonus_tokens-after-resolve_inputs-from-publish: the same, and the first call that goes wrong is publish, not stash",
    ]


def test_the_list_is_short() -> None:
    lines = listed([reproducer("stash", f"field_{number}") for number in range(20)])
    assert lines[-1] == "             and 7 more"
    assert len(lines) == 14
    assert listed([]) == []


def test_ctrl_c_keeps_what_was_made_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    whole, half = (tmp_path / "reproducers" / name for name in ("whole", "half"))

    def stopped(*words: object) -> None:
        for folder in (whole, half):
            folder.mkdir(parents=True)
            (folder / "reproduce.py").write_text("", encoding="utf-8")
        (whole / "divergence.json").write_text("{}", encoding="utf-8")
        words[-1].append(reproducer("stash"))
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduce, "reproduce_run", stopped)
    monkeypatch.setattr(reproduce, "write_page", lambda artifacts: "the page")
    assert reproduce.main([str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert said.err == "stopped; what follows was made before\n"
    assert said.out.startswith("1 distinct divergence; the page\nopen first ")
    assert (whole.exists(), half.exists()) == (True, False)


def test_the_command_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(reproduce, "reproduce_run", lambda *words: words[-1].extend([reproducer("stash"), reproducer("scheduler")]))
    monkeypatch.setattr(reproduce, "write_page", lambda artifacts: "the page")
    assert reproduce.main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["2", "open", "also"]


def test_a_check_that_could_not_be_made_has_no_folder_beside_what_prevented_it(tmp_path: Path, sut, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce, "write_check_reproducer", lambda folder, *others: folder)
    failure = {"verdict": "DIVERGED", "field": "test_x", "operation": "scheduler", "line": "x", "unmade": True}
    file = save_failure(tmp_path, json.dumps({"check": "x"}), failure, sut.to_dict(), "release mode", "check.json")
    kept = json.loads(file.with_name("divergence.json").read_text(encoding="utf-8"))
    made = reproduce.Reproducers(tmp_path, sut, "cpu", 1)
    made.shown = True
    assert made.make(file, kept) == []
    alone = reproduce.Reproducers(tmp_path, sut, "cpu", 1)
    assert alone.make(file, kept) == [tmp_path / "reproducers/test_x-after-scheduler-from-check"]
