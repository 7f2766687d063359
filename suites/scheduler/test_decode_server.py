"""Requests that were prefilled elsewhere: a decode server retracts one and resumes it, and allocates another while decodes are in flight."""

from __future__ import annotations

import pytest

from fixtures.schedule import Iteration, Request, Run, Schedule
from fixtures.sglang_scheduler.run import PREBUILT

FINDING = "a request that a decode server retracts and resumes drafts from KV that is not its own"
WAITS = 3  # iterations before one is retracted; others write to its KV locations before it resumes
RETRACTED = Schedule(
    run=Run(block_size=4, slots=2, prebuilt=True),
    requests=tuple(Request(id=identity, prompt=9, budget=30, accept=(3,)) for identity in range(3)),
    iterations=(*(Iteration(),) * WAITS, Iteration(retract=1)),
)


def test_a_resumed_request_drafts_from_its_own_context(levels: tuple[str, ...], review, looked_for, runner_for) -> None:
    if "scheduler" not in levels:
        pytest.skip("SGLang's scheduler is not run: --level relay")
    seen = runner_for("release", "scheduler").job(
        "less_kind", document=RETRACTED.to_json(), conditions={"draft_kept": False}
    )
    if not seen["also"].get(PREBUILT):
        pytest.skip("DFlash cannot run on a decode server before 0.5.20")
    lines = looked_for("decode server", [seen["divergence"]], lambda each: each["field"] == "accept_lens")
    review("decode server", FINDING, lines and lines[0])


UNFENCED = "a decode server allocates requests ahead of the write-after-read barrier"
IN_TURN = Schedule(
    run=Run(block_size=3, slots=2, eagle=2, prebuilt=True), requests=tuple(Request(id=identity, prompt=5, budget=3 + identity) for identity in range(8))
)


def test_a_decode_server_allocates_behind_what_is_in_flight(levels: tuple[str, ...], device: str, review, looked_for, runner_for) -> None:
    if "scheduler" not in levels:
        pytest.skip("SGLang's scheduler is not run: --level relay")
    if device != "cpu":
        pytest.skip("streams are simulated in a gate without a GPU; here they are real")
    seen = runner_for("virtual", "scheduler").job("less_kind", document=IN_TURN.to_json(), conditions={"queue_fenced": False})
    lines = looked_for("decode queue", [seen["divergence"]], lambda each: each["field"] in ("race", "lifetime"))
    review("decode queue", UNFENCED, lines and lines[0])
