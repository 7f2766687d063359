"""What the block at the end of a run says, from what the tests reported."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from fixtures.artifacts import LAST_RUN
from fixtures.sut import ROOT, Sut
from fixtures.tally import Tally
from reports import reproduce
from reports.verdict import VerdictReporter
from suites.differential.test_streams import outcome
from suites.races.test_virtual_streams import report

OPTIONS = {"profile": "gate", "device": "cpu", "artifacts": "artifacts", "sut": None, "schedules": None, "replay": None, "-k": "", "-m": ""}


@pytest.fixture
def reporter(tmp_path):
    """Makes a reporter of a run with these options, in which something passed."""
    made = []

    def make(**options: object) -> VerdictReporter:
        options = OPTIONS | {name.replace("_", "-"): value for name, value in options.items()}
        config = SimpleNamespace(getoption=options.__getitem__, rootpath=tmp_path)
        made.append(VerdictReporter(config, Sut("/sglang", "0.5.23", "", "0" * 12, "bonus_tokens", ""), 1))
        made[-1].passed = 1
        return made[-1]

    yield make
    for one in reversed(made):
        one.pytest_unconfigure()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schedules": 25}, "--schedules 25, and the profile has 6,160"),
        ({"profile": "quick", "_k": "streams and release"}, "-k 'streams and release' chose"),
    ],
    ids=["schedules", "-k"],
)
def test_a_part_of_a_profile_is_not_called_the_profile(options: dict, words: str, reporter) -> None:
    one = reporter(**options)
    assert one.word() == "PASS"
    assert f"PASS: no difference found, but this was not the full {one.profile_name} profile: SGLang 0.5.23" in one.headline("PASS")
    assert any(line.startswith(f"not full     {words}") for line in one.block())
    assert one.summary()["partial"]


def test_as_many_schedules_as_the_profile_has_are_judged_as_the_profile(reporter) -> None:
    assert reporter(schedules=6160).word() == "INCOMPLETE"
    assert reporter().word() == "INCOMPLETE"


def failure(index: int, field: str, **changes: object) -> dict:
    line = f"iteration 3, request 1, slot 2: {field} after filter: expected 5, got {index}"
    known = {"verdict": "DIVERGED", "field": field, "operation": "filter", "line": line, "index": index}
    return known | {"schedule": f"failures/{field}-{index}/schedule.json"} | changes


def test_failures_of_a_kind_are_counted_and_the_earliest_is_shown(reporter) -> None:
    """Whatever order the workers found them in."""
    failures = [failure(index, "bonus_tokens") for index in range(5, 305)] + [failure(7, "seq_lens")]
    blocks = set()
    for order in (failures, failures[::-1]):
        one = reporter(schedules=400)
        one.total.failures += order
        blocks.add("\n".join(one._divergences()))
    (block,) = blocks
    assert block.splitlines() == [
        "diverged     iteration 3, request 1, slot 2: bonus_tokens after filter: expected 5, got 5",
        "             the first of 300 like it",
        "             replay: tox -e replay -- failures/bonus_tokens-5/schedule.json",
        "diverged     iteration 3, request 1, slot 2: seq_lens after filter: expected 5, got 7",
        "             replay: tox -e replay -- failures/seq_lens-7/schedule.json",
        "reproduce    tox -e reproduce",
    ]


def test_more_kinds_than_fit_are_counted(reporter) -> None:
    one = reporter(schedules=400)
    one.total.failures += [failure(index, f"field_{index % 12}") for index in range(36)]
    text = "\n".join(one._divergences())
    assert text.count("diverged ") == 8
    assert "and 12 of 4 other kinds" in text


def test_the_nightly_run_is_followed_by_its_reproducers(tmp_path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """With the run's own words, wherever it wrote; a run without failures makes none."""
    nightly = (ROOT / "tox.ini").read_text(encoding="utf-8").partition("[testenv:nightly]")[2].partition("[testenv:")[0]
    assert "commands_post = - python -m reports.reproduce --after-run {posargs}" in nightly
    monkeypatch.setattr(reproduce, "write_page", lambda artifacts: f"the page in {artifacts}")
    words = ["--budget", "8h", "-k", "streams", "--artifacts", str(tmp_path), "--device", "cuda:1", "--sut", "0.5.19"]
    assert reproduce.main(["--after-run", *words]) == 0
    assert f"0 distinct divergences; the page in {tmp_path}" in capsys.readouterr().out


def test_an_internal_error_of_pytest_is_no_verdict_of_what_passed(reporter) -> None:
    one = reporter(schedules=25)
    one._judge(SimpleNamespace(exitstatus=pytest.ExitCode.INTERNAL_ERROR), pytest.ExitCode.INTERNAL_ERROR)
    assert one.word() == "ERROR"
    assert "error        pytest broke off with an internal error, which it says above" in one.block()


def test_the_first_of_many_shortages_are_said(reporter) -> None:
    one = reporter()
    lines = one.block()
    first = next(place for place, line in enumerate(lines) if line.startswith("incomplete "))
    said = lines[first : first + 9]
    assert [line.startswith("incomplete   ") for line in said] == [True] * 8 + [False]
    assert f"and {len(one.shortages()) - 8} more, in " in said[-1]
    assert one.summary()["incomplete"] == one.shortages()


def test_the_projects_own_tests_leave_the_last_run_the_last(tmp_path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--artifacts", str(tmp_path)]
    for words, left in ((["suites/selftest/test_distribution.py"], False), (["suites/differential", "-k", "nothing_is_called_so"], True)):
        subprocess.run([*command, *words], cwd=ROOT, capture_output=True, check=False)
        assert (tmp_path / LAST_RUN).exists() == left


def test_of_one_schedule_it_says_how_each_run_went(reporter) -> None:
    """No seed, no pairs, nothing that did not happen; where it went wrong, what touched the slot before, and what makes it small."""
    one = reporter(replay=["kept.json"])
    modes = {"overlap": 9, "release mode": 9, "n-gram draft inputs": 4, "plan stream": 0}
    wrong = failure(-1, "seq_lens", history=["iteration 2: merge of slots [1, 2]"])
    alone, apart = Tally(iterations=9, events={"merge": 2, "idle": 0}, modes=modes), Tally(failures=[wrong])
    about = {"file": "kept.json", "requests": 1}
    found = [about | outcome("release mode", alone), about | outcome("two ranks, scheduler level", apart)]
    properties = [("replayed", each) for each in found]
    one.pytest_runtest_logreport(
        SimpleNamespace(
            nodeid="test_replay", when="call", passed=False, failed=True, longrepr="DIVERGED", user_properties=properties,
            relay_tally=Tally(failures=[wrong]).to_dict(),
        )
    )  # fmt: skip
    assert one.block()[:-1] == [
        "schedule     kept.json: 1 request",
        "             release mode: no difference; 9 iterations: merge 2, n-gram draft inputs 4",
        "             two ranks, scheduler level: DIVERGED",
        "diverged     iteration 3, request 1, slot 2: seq_lens after filter: expected 5, got -1",
        "             iteration 2: merge of slots [1, 2]",
        "             minimize: tox -e minimize -- failures/seq_lens--1/schedule.json",
    ]


def test_checks_that_could_not_be_made_are_named_with_what_went_wrong_instead(reporter) -> None:
    one = reporter(schedules=400)
    one.total.failures += [failure(-1, "seq_lens", unmade="plan stream"), failure(3, "seq_lens"), failure(-1, "seq_lens", unmade="chunk room")]
    assert one.word() == "DIVERGED"
    lines = one._divergences()
    assert "             the first of 3 like it" in lines
    assert lines[-1] == "not made     checks whose schedules went wrong in another way: chunk room, plan stream"


def test_a_race_whose_schedule_was_not_kept_is_reported_all_the_same() -> None:
    """Of one kind no more than so many are kept."""
    tally = Tally(failures=[{name: value for name, value in failure(1, "race", history=[]).items() if name != "schedule"}])
    with pytest.raises(pytest.fail.Exception, match="DIVERGED iteration 3, request 1, slot 2: race after filter"):
        report(tally, lambda name, value: None)
