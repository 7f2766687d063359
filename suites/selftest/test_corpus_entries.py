"""The corpus is in order, shows what it is kept for, and takes what a reproducer gives it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.corpus import FOLDER, CorpusError, keep, load_corpus, main, shown_by
from fixtures.schedule import ScheduleError
from fixtures.sut import ROOT

ONE = '{"version": 1, "requests": [{"id": 0, "budget": 3}]}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/why.json").write_text("{}", encoding="utf-8")
    (tmp_path / "schedule.json").write_text(ONE, encoding="utf-8")
    return tmp_path / "corpus"


@pytest.mark.parametrize("kept", load_corpus(), ids=lambda kept: kept.name)
def test_kept_schedules_show_what_they_are_kept_for(kept) -> None:
    events, pairs = shown_by(kept.schedule())
    assert kept.shows
    assert set(kept.shows) <= set(events) | set(pairs)
    assert kept.why == " ".join(kept.why.split())


def test_a_schedule_is_kept_and_found_again(folder: Path) -> None:
    added = keep(folder.parent / "schedule.json", "one-request", "nothing\n else runs", folder)
    assert load_corpus(folder) == [added]
    assert (added.why, added.shows) == ("nothing else runs", ("drain", "prefill"))
    assert json.loads(added.file().read_text(encoding="utf-8")) == json.loads(ONE)


@pytest.mark.parametrize(
    ("name", "why", "reason"),
    [
        ("One Request", "x", "small letters"),
        ("../one", "x", "small letters"),
        ("why", "x", "small letters"),
        ("another", " \n", "one line that says why"),
        ("one", "x", "kept already, because first"),
        ("another", "x", "kept already, as one"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, name: str, why: str, reason: str) -> None:
    keep(folder.parent / "schedule.json", "one", "first", folder)
    before = sorted(file.name for file in folder.iterdir())
    with pytest.raises(CorpusError, match=reason):
        keep(folder.parent / "schedule.json", name, why, folder)
    assert sorted(file.name for file in folder.iterdir()) == before


def test_files_and_lines_belong_together(folder: Path) -> None:
    (folder / "stray.json").write_text(ONE, encoding="utf-8")
    with pytest.raises(CorpusError, match=r"stray\.json: no line in why\.json"):
        load_corpus(folder)
    (folder / "stray.json").unlink()
    (folder / "why.json").write_text('{"gone": {"why": "x", "shows": []}}', encoding="utf-8")
    with pytest.raises(CorpusError, match=r"gone\.json: no such file"):
        load_corpus(folder)


def test_a_bad_schedule_is_not_kept(folder: Path) -> None:
    (folder.parent / "schedule.json").write_text('{"version": 9}', encoding="utf-8")
    with pytest.raises(ScheduleError, match="version: '9' is not known"):
        keep(folder.parent / "schedule.json", "nine", "x", folder)


def test_the_command_says_no_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(FOLDER.iterdir())
    assert main(["add", str(tmp_path / "absent.json"), "--name", "absent", "--why", "x"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot be read" in said
    assert sorted(FOLDER.iterdir()) == before


def test_the_gate_replays_the_corpus_first() -> None:
    """In the order of collection, which is the order of a run."""
    command = [sys.executable, "-m", "pytest", "suites", "--ignore=suites/selftest", "--collect-only", "-q"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [line for line in done.stdout.splitlines() if "::" in line]
    kept = 2 * len(load_corpus())
    assert all("test_corpus.py" in name for name in names[:kept])
    assert not any("test_corpus.py" in name for name in names[kept:])
