"""With debug assertions on, a gather that no stash or publish came before is seen by SGLang itself."""

from __future__ import annotations

import pytest

from fixtures.sentinels import QUIET, RAISES

pytestmark = pytest.mark.new_contract


@pytest.fixture(scope="module")
def fired(debug_runner, device: str) -> list[dict[str, bool]]:
    """Without and with lengths mirrored to the host."""
    if device.startswith("cuda"):
        pytest.skip("an assertion that fires on a GPU takes the process with it; the CPU runs the same code")
    return debug_runner.job("watchfulness")


def test_debug_assertions_keep_watch(fired: list[dict[str, bool]]) -> None:
    for one in fired:
        assert [what for what in RAISES if what in one and not one[what]] == []
        assert {"a token read twice", "a token nobody wrote"} <= set(one)


def test_debug_assertions_leave_other_rows_alone(fired: list[dict[str, bool]]) -> None:
    for one in fired:
        assert [what for what in QUIET if one[what]] == []
