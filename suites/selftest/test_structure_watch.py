"""The structure suite sees an access to the old name however it is spelled."""

from __future__ import annotations

import pytest

from fixtures.broken_copy import Edit
from fixtures.sut import OVERLAP_UTILS

pytestmark = pytest.mark.new_contract

GATHER = "        else:\n            draft_input.bonus_tokens = self.output_tokens_buf[indices]\n"


def test_name_built_from_two_strings_is_seen_at_run_time(broken_sut, runner_on) -> None:
    hidden = '            getattr(draft_input, "verified" + "_id", None)\n'
    runner = runner_on(broken_sut(Edit(OVERLAP_UTILS, GATHER, GATHER + hidden)))
    assert runner.job("mentions", word="verified_id") == []
    assert "verified_id" in runner.job("accesses", seed=7, start=0, count=3)["names"]


def test_name_in_a_path_that_never_runs_is_seen_in_the_source(broken_sut, runner_on) -> None:
    dead = "            if False:\n                draft_input.verified_id = None\n"
    runner = runner_on(broken_sut(Edit(OVERLAP_UTILS, GATHER, GATHER + dead)))
    assert "verified_id" not in runner.job("accesses", seed=7, start=0, count=3)["names"]
    assert [place.split(":")[0] for place in runner.job("mentions", word="verified_id")] == [OVERLAP_UTILS]


def test_direct_carry_is_seen_by_the_poison(broken_sut, runner_on) -> None:
    """A relay that skips the gather while the batch keeps its shape reads what was carried."""
    carried = "        if indices.shape[0] > 2:\n            return\n"
    before = "        # FIXME: indices = batch.req_pool_indices, pinned 2 iters via\n"
    runner = runner_on(broken_sut(Edit(OVERLAP_UTILS, before, carried + before)))
    poisoned = runner.job("poisoned", seed=11, start=0, count=5)
    assert poisoned["totals"]["gathered"] < poisoned["totals"]["decodes"]
    assert poisoned["tally"]["failures"]
