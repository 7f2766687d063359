"""Requests that run to the limit of the model's context: every row of the request table is wide enough for what is reserved."""

from __future__ import annotations

import pytest

from fixtures.schedule import Request, Run, Schedule

FINDING = "a decode near the context limit is given KV locations beyond its row of the request table"
SHIPPED_BLOCK = 16  # what SGLang falls back to where a draft model names no block size
BLOCKS = (1, 4, 8, SHIPPED_BLOCK)


def to_the_limit(block_size: int) -> str:
    requests = tuple(Request(id=identity, prompt=10, budget=60, accept=(2,)) for identity in range(3))
    return Schedule(run=Run(block_size=block_size, slots=3), requests=requests).to_json()


def test_no_row_is_written_beyond_its_width(
    levels: tuple[str, ...], review, looked_for, runner_for, pytestconfig
) -> None:
    if "scheduler" not in levels:
        pytest.skip("SGLang's scheduler is not run: --level relay")
    if pytestconfig.getoption("device") != "cpu":
        pytest.skip("rows are as wide on a CPU: leave --device out")
    runner = runner_for("release", "scheduler")
    seen = {block: runner.job("context_limit", document=to_the_limit(block)) for block in BLOCKS}
    beyond = {block: found["line"] for block, found in seen.items() if found and "to a row" in found["line"]}
    looked_for("context limit", list(seen.values()), lambda each: each["line"] in beyond.values())
    review("context limit", FINDING, beyond and f"block sizes {sorted(beyond)}: {beyond}")
    if set(beyond) - {SHIPPED_BLOCK}:
        pytest.fail(f"at smaller blocks than is known: {sorted(beyond)}", pytrace=False)
