"""Every publish records the event that fences it, and every resolve waits for it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.new_contract


@pytest.fixture(scope="module")
def fences(release_runner) -> dict:
    return release_runner.job("fences", seed=13, start=0, count=40)


def test_every_publish_records_its_event(fences: dict) -> None:
    assert fences["publishes"] > 400
    assert fences["recorded"] == fences["publishes"]


def test_every_resolve_waits_for_it(fences: dict) -> None:
    assert fences["resolves"] > 250
    assert fences["waited"] == fences["resolves"]
