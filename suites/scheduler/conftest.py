"""What the scheduler's own checks find is a failure, or reviewed in `known.json`."""

from __future__ import annotations

import pytest

from fixtures.known import sort_findings


@pytest.fixture
def review(sut, known, record_property):
    """Fails where a finding is new, and where a known one is not there any more. seen: what shows it, or nothing."""

    def judged(check: str, finding: str, seen: object) -> None:
        new, stale, matched = sort_findings([finding] if seen else [], check, sut.release, known)
        for entry in matched:
            record_property("known", [entry.id, entry.reason])
        assert not new, f"{finding}: {seen}"
        assert not stale, f"known findings that are not there any more: {', '.join(stale)}"

    return judged
