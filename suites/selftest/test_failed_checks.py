"""What a reader sees at the end of a run that failed: the verdict last, and above it no more than a line for each check."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.sut import ROOT

BROKEN = """
import pytest

LINE = "iteration 3, request 1, slot 2: seq_lens after filter: expected 5, got 4"
KNOWN = dict(verdict="DIVERGED", field="seq_lens", operation="filter", iteration=3, request=1, slot=2, expected="5", actual="4", line=LINE, history=[])

@pytest.mark.parametrize("number", range(12))
def test_of_many(number, tally):
    tally.failures.append(KNOWN)
    pytest.fail(f"DIVERGED {LINE}\\n    iteration 2: merge of slots [1, 2]", pytrace=False)

def test_that_asserts():
    assert 5 == 4

def test_with_a_slip():
    {}["absent"]
"""


@pytest.fixture
def run_broken(run_suite, tmp_path: Path):
    """Runs checks of no SGLang, with this project's own pytest. Returns what it said, without the progress."""
    file = tmp_path / "test_broken.py"
    file.write_text(BROKEN, encoding="utf-8")

    def run(*words: str) -> list[str]:
        ran = run_suite("-p", "conftest", "-c", str(ROOT / "tox.ini"), "--rootdir", str(ROOT), *words, suites=str(file))
        return [line.rstrip() for line in ran.text.splitlines() if "%] " not in line]

    return run


def test_the_verdict_comes_last_and_a_failed_check_is_a_line(run_broken) -> None:
    lines = run_broken()
    assert lines[-1].startswith("artifacts    ")
    (verdict,) = [place for place, line in enumerate(lines) if "= relay verdict =" in line]
    assert [place < verdict for place, line in enumerate(lines) if " 14 failed in " in line] == [True]
    assert len(lines) - verdict < 20
    many = [line.partition("::")[2] for line in lines if "::test_of_many" in line]
    assert len(many) == 9
    assert many[-2:] == ["test_of_many[7]: DIVERGED iteration 3, request 1, slot 2: seq_lens after filter: expected 5, got 4", "test_of_many: 4 more"]
    assert not any("merge of slots" in line or "short test summary" in line for line in lines)
    # What the verdict names is named there alone; a slip of this suite's own keeps its traceback.
    assert [place > verdict for place, line in enumerate(lines) if line.endswith("::test_that_asserts: assert 5 == 4")] == [True]
    assert [place < verdict for place, line in enumerate(lines) if line == '>       {}["absent"]'] == [True]


@pytest.mark.parametrize(
    ("words", "seen"),
    [(["-v"], ["= FAILURES =", "= short test summary info ="]), (["-rA", "--tb=short"], ["= short test summary info =", "    iteration 2: merge of slots [1, 2]"])],
    ids=["-v", "-rA"],
)
def test_pytest_says_more_when_it_is_asked_to(words: list[str], seen: list[str], run_broken) -> None:
    lines = run_broken(*words)
    assert all(any(each in line for line in lines) for each in seen)
    assert lines[-1].startswith("artifacts    ")
