"""What the scheduler's own checks find is a failure, or reviewed in `known.json`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fixtures.known import sort_findings


@pytest.fixture
def looked_for(tally):
    """The lines of what a check looks for; fails in one line where a schedule went wrong in another way, which says nothing of the check."""

    def sorted_out(check: str, found: list[dict | None], by: Callable[[dict], bool]) -> list[str]:
        found = [each for each in found if each is not None]
        others = [each for each in found if not by(each)]
        if others:
            tally.failures += [each | {"unmade": check} for each in others]
            more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
            pytest.fail(f"{others[0]['verdict']} {others[0]['line']}{more}: the check of {check} could not be made", pytrace=False)
        return [each["line"] for each in found]

    return sorted_out


@pytest.fixture
def review(sut, known, record_property):
    """Fails where a finding is new, and where a known one is not there any more. seen: what shows it, or nothing."""

    def judged(check: str, finding: str, seen: object) -> None:
        new, stale, matched = sort_findings([finding] if seen else [], check, sut.release, known)
        for entry in matched:
            record_property("known", [entry.id, entry.reason])
        if new:
            pytest.fail(f"{finding}: {seen}", pytrace=False)
        if stale:
            pytest.fail(f"known findings that are not there any more: {', '.join(stale)}", pytrace=False)

    return judged
