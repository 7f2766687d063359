"""What cannot be read or written costs no verdict and no measurement: one line says what it was."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fixtures.sut import ROOT, SutError, read_contract
from reports import coverage, fault_matrix, mutants
from reports.detection import read_detection
from reports.kept import read_kept
from reports.page import read_reproducers

TOO_DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"), ("{", "not JSON"), ("null", "not what this report writes"), ("3", "not what this report writes"),
        ('{"a": {}}', "something is missing in it"), (TOO_DEEP, "nested too deeply"), (None, "No such file or directory"),
    ],
    ids=["empty", "cut off", "null", "a number", "hollow", "deep", "absent"],
)  # fmt: skip
def test_a_measurement_that_cannot_be_read_is_said_in_one_line(
    text: str | None, words: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    file = tmp_path / "mutants.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        read_kept(file, lambda data: data["a"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said.startswith(f"{file}: ")
    assert words in said


@pytest.mark.parametrize("report", [mutants, fault_matrix, coverage], ids=lambda report: report.__name__)
def test_a_hollow_measurement_overwrites_nothing(report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (ROOT / "reports/measured").glob("*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    hollow = {"mutants.json": {"origins": ["x"], "tried": {}}, "faults.json": {"origin": "x", "found": {}}, "coverage-0.5.23.json": [[], {}, []]}
    for name, data in hollow.items():
        (tmp_path / name).write_text(json.dumps(data), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["report", "--draw"])
    for name, value in (("FILE", tmp_path / f"{report.__name__.rpartition('.')[2]}.md"), ("FOLDER", tmp_path), ("LAST", tmp_path)):
        monkeypatch.setattr(report, name, value, raising=False)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(SystemExit) as ended:
        report.main()
    assert ended.value.code == 2
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_no_parts_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr("sys.argv", ["mutants", "--parts", "0"])
    with pytest.raises(SystemExit) as ended:
        mutants.main()
    assert ended.value.code == 2
    assert "--parts 0: give 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["null", "3", '{"divergence": null}', TOO_DEEP], ids=["null", "a number", "no failure", "deep"])
def test_a_broken_reproducer_is_left_out_of_the_page(text: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "reproducers/one").mkdir(parents=True)
    (tmp_path / "reproducers/one/divergence.json").write_text(text, encoding="utf-8")
    assert read_reproducers(tmp_path) == []
    assert "left out of the page" in capsys.readouterr().err


def test_a_broken_matrix_of_faults_counts_as_not_measured(tmp_path: Path) -> None:
    (tmp_path / "faults.svg").write_text("<svg/>", encoding="utf-8")
    for text in ("{", "[]", TOO_DEEP):
        (tmp_path / "faults.json").write_text(text, encoding="utf-8")
        assert read_detection(tmp_path) is None


def test_the_verdict_is_said_though_the_page_cannot_be_written(run_suite, tmp_path: Path) -> None:
    (tmp_path / "artifacts/report.html").mkdir(parents=True)
    done = run_suite(suites="suites/races/test_sanitizer.py")
    assert "SKIPPED: nothing could run here" in done.text
    assert "not written  report.html: IsADirectoryError" in done.text
    assert done.code == 0


def test_a_relay_file_that_never_ends_is_refused(sut, tmp_path: Path) -> None:
    for name in ("sglang/srt/managers", "sglang/srt/speculative"):
        (tmp_path / name).mkdir(parents=True)
    os.mkfifo(tmp_path / "sglang/srt/managers/overlap_utils.py")
    with pytest.raises(SutError, match="is not a regular file"):
        read_contract(tmp_path, str(tmp_path))
