"""With debug assertions on, a gather that no stash or publish came before is seen by SGLang itself."""

from __future__ import annotations

import pytest

from fixtures.sentinels import QUIET, RAISES

pytestmark = pytest.mark.new_contract


def test_debug_assertions_keep_watch(debug_runner) -> None:
    fired = debug_runner.job("watchfulness")
    assert {what: fired[what] for what in RAISES if what in fired} == {what: True for what in RAISES if what in fired}
    assert {"a token read twice", "a token nobody wrote"} <= set(fired)


def test_debug_assertions_leave_other_rows_alone(debug_runner) -> None:
    fired = debug_runner.job("watchfulness")
    assert {what: fired[what] for what in QUIET} == {what: False for what in QUIET}
