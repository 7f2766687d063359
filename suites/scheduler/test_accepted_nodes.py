"""N-gram speculation moves the KV of accepted nodes to its place: before the scheduler may give that place to somebody else."""

from __future__ import annotations

import pytest

from fixtures.draw import SHAPES, seeded
from fixtures.sglang_scheduler.run import NGRAM

FINDING = "n-gram's worker reads the request table behind the event that lets the scheduler write it"
MOVING = ((1, 2), (1, 5), (7, 1))  # seeds and indices of schedules in which a finished request's slot is reused at once


def test_accepted_nodes_are_moved_before_their_row_is_reused(levels: tuple[str, ...], device: str, review, looked_for, runner_for) -> None:
    if "scheduler" not in levels:
        pytest.skip("SGLang's scheduler is not run: --level relay")
    if device != "cpu":
        pytest.skip("streams are simulated in a gate without a GPU; here they are real")
    runner, found = runner_for("virtual", "scheduler"), []
    for seed, index in MOVING:
        document = seeded(seed, index, SHAPES["ngram"]).to_json()
        seen = runner.job("less_kind", document=document, conditions={"moves_early": False})
        if not seen["also"].get(NGRAM):
            pytest.skip("n-gram speculation has no relay before 0.5.18")
        found.append(seen["divergence"])
    lines = looked_for("accepted nodes", found, lambda each: "move_accept_tokens_to_target_kvcache" in each["line"])
    review("accepted nodes", FINDING, lines and lines[0])
