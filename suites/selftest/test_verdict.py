"""What the block at the end of a run says, from what the tests reported."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from fixtures.artifacts import LAST_RUN, RUN, begin_run, save_failure
from fixtures.draw import seeded
from fixtures.sut import ROOT, Sut
from fixtures.tally import Tally
from reports import reproduce
from reports.verdict import VerdictReporter
from suites.differential.test_streams import outcome
from suites.races.test_virtual_streams import report

OPTIONS = {"profile": "gate", "device": "cpu", "artifacts": "artifacts", "sut": None, "schedules": None, "replay": None, "level": "all", "-k": "", "-m": ""}


@pytest.fixture
def reporter(tmp_path):
    """Makes a reporter of a run with these options, in which something passed."""
    made = []

    def make(**options: object) -> VerdictReporter:
        options = OPTIONS | {name.replace("_", "-"): value for name, value in options.items()}
        narrowed = {"args": options.pop("args", ["suites"]), "option": SimpleNamespace(**options.pop("option", {}))}
        config = SimpleNamespace(getoption=options.__getitem__, rootpath=tmp_path, **narrowed)
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
        ({"profile": "quick", "args": ["suites/dtype"]}, "suites/dtype chose among the checks"),
        ({"profile": "quick", "option": {"deselect": ["suites/dtype/a.py::test"]}}, "--deselect=suites/dtype/a.py::test chose"),
        ({"profile": "quick", "option": {"ignore": ["suites/selftest", "suites/races"]}}, "--ignore=suites/races chose"),
        ({"profile": "nightly", "level": "relay"}, "--level relay, and the profile runs both"),
    ],
    ids=["schedules", "-k", "a path", "deselected", "ignored", "one level"],
)
def test_a_part_of_a_profile_is_not_called_the_profile(options: dict, words: str, reporter) -> None:
    one = reporter(**options)
    assert one.word() == "PASS"
    assert f"PASS: no difference found, but this was not the full {one.profile_name} profile: SGLang 0.5.23" in one.headline("PASS")
    assert any(line.startswith(f"not full     {words}") for line in one.block())
    assert one.summary()["partial"]


def test_a_changed_file_that_the_level_does_not_run_is_named(reporter) -> None:
    one = reporter(profile="quick", level="relay")
    one.changed = ["srt/managers/overlap_utils.py"]
    assert one.partial() == []
    one.changed.append("srt/managers/scheduler.py")
    assert one.partial() == ["changed files beside the relay hardly run without --level all: srt/managers/scheduler.py"]
    assert "but this was not the full quick profile" in one.headline("PASS")


def test_the_whole_profile_as_tox_calls_it_is_not_partial(reporter, tmp_path) -> None:
    for words in (["suites"], [str(tmp_path)], [str(tmp_path / "suites")]):
        assert reporter(profile="quick", args=words, option={"ignore": [str(tmp_path / "suites/selftest")]}).partial() == []


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


def test_a_stopped_run_tells_what_it_had_kept(reporter, tmp_path, monkeypatch) -> None:
    """A check adds up what it found when it ends."""
    monkeypatch.setenv(RUN, "")
    one, document = reporter(schedules=25), seeded(1, 1).to_json()
    begin_run(tmp_path / "artifacts")
    found = failure(1, "seq_lens")
    found.pop("schedule")
    kept = save_failure(tmp_path / "artifacts", document, found, {}, "release mode")
    one._judge(SimpleNamespace(exitstatus=2), pytest.ExitCode.INTERRUPTED)
    assert one.headline(one.word()).startswith("INTERRUPTED, so far DIVERGED")
    assert f"             replay: tox -e replay -- {kept}" in one.block()


def test_what_breaks_beside_the_sut_is_no_difference_of_it(reporter) -> None:
    for error, word in (("NotADirectoryError: [Errno 20]", "ERROR"), ("AssertionError: int32", "DIVERGED")):
        one = reporter(schedules=25)
        crash = SimpleNamespace(reprcrash=SimpleNamespace(message=error))
        one.pytest_runtest_logreport(
            SimpleNamespace(nodeid="suites/dtype/a.py::test", when="call", passed=False, failed=True, longrepr=crash, user_properties=[])
        )
        assert one.word() == word


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
