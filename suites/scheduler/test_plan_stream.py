"""EAGLE prepares verify and draft-extend on a stream of its own, where a server is told so: it waits for what it reads there."""

from __future__ import annotations

import pytest

from fixtures.schedule import Request, Run, Schedule

FINDING = "EAGLE plans on a stream that does not wait for what it reads"
PLANNED = Schedule(
    run=Run(block_size=3, slots=2, eagle=1, plan_stream=True), requests=tuple(Request(id=identity, budget=8) for identity in range(3))
)


def test_eagle_plans_behind_what_it_reads(levels: tuple[str, ...], device: str, review, looked_for, runner_for) -> None:
    if "scheduler" not in levels:
        pytest.skip("SGLang's scheduler is not run: --level relay")
    if device != "cpu":
        pytest.skip("streams are simulated in a gate without a GPU; here they are real")
    seen = runner_for("virtual", "scheduler").job("less_kind", document=PLANNED.to_json(), conditions={"plan_waits": False})
    lines = looked_for(
        "plan stream", [seen["divergence"]], lambda each: each["field"] in ("race", "lifetime") and "the plan stream" in each["line"]
    )
    review("plan stream", FINDING, lines and lines[0])
