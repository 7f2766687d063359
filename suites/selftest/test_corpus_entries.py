"""The corpus is in order, shows what it is kept for, and takes what a reproducer gives it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures import corpus
from fixtures.broken_copy import Edit
from fixtures.corpus import FOLDER, CorpusError, keep, load_corpus, main, shown_by
from fixtures.schedule import ScheduleError
from fixtures.sut import OVERLAP_UTILS, ROOT, SutError

TWO = '{"version": 1, "requests": [{"id": 0, "budget": 5}, {"id": 1, "budget": 5}]}'
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


def kept_by_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch, runners) -> None:
    monkeypatch.setattr(corpus, "keep", lambda file, name, why: keep(file, name, why, folder))
    monkeypatch.setattr(corpus, "runners_of_the_gate", runners)
    assert main(["add", str(folder.parent / "schedule.json"), "--name", "one", "--why", "first"]) == 0
    assert [kept.name for kept in load_corpus(folder)] == ["one"]


def test_the_command_says_what_the_gate_will_make_of_it(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys, sut, broken_sut, runner_on) -> None:
    (folder.parent / "schedule.json").write_text(TWO, encoding="utf-8")
    turned = broken_sut(Edit(OVERLAP_UTILS, "self.output_tokens_buf[indices] = payload", "self.output_tokens_buf[indices.flip(0)] = payload"))
    for build, said in ((sut, f"passes on {sut.title()} (release mode)"), (turned, f"fails on {turned.title()} (release mode), and so will the gate: DIVERGED iteration ")):
        for file in folder.glob("one.json"):
            file.unlink()
        (folder / "why.json").write_text("{}", encoding="utf-8")
        kept_by_the_command(folder, monkeypatch, lambda scratch, build=build: [runner_on(build)])
        assert capsys.readouterr().out.splitlines()[1].startswith(said)


def test_the_command_says_which_one_tells_where_the_release_is_absent(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def absent(scratch: Path):
        raise SutError("--sut 0.5.23: not on this machine")

    kept_by_the_command(folder, monkeypatch, absent)
    said = capsys.readouterr().out.splitlines()[1]
    assert said == f"not run on SGLang 0.5.23 (--sut 0.5.23: not on this machine); this tells: tox -e replay -- {folder / 'one.json'} --level all"


def test_the_gate_replays_the_corpus_first() -> None:
    """In the order of collection, which is the order of a run."""
    command = [sys.executable, "-m", "pytest", "suites", "--ignore=suites/selftest", "--collect-only", "-q"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [line for line in done.stdout.splitlines() if "::" in line]
    kept = 2 * len(load_corpus())
    assert all("test_corpus.py" in name for name in names[:kept])
    assert not any("test_corpus.py" in name for name in names[kept:])
