"""A prompt in chunks beside requests that decode: there is room for its next chunk, or it waits."""

from __future__ import annotations

import pytest

from fixtures.schedule import Request, Run, Schedule

FINDING = "a prompt's next chunk finds no room in the KV pool and the scheduler raises"
# Room for either request alone with all that it reserves, and SGLang admits both.
BESIDE = Schedule(
    run=Run(slots=2, spare_pages=0, chunk=4, mixed=True), requests=(Request(id=0, budget=7), Request(id=1, prompt=17))
)


def test_a_prompts_next_chunk_finds_room_or_waits(levels: tuple[str, ...], review, looked_for, runner_for) -> None:
    if "scheduler" not in levels:
        pytest.skip("SGLang's scheduler is not run: --level relay")
    runner = runner_for("release", "scheduler")
    found = runner.job("less_kind", document=BESIDE.to_json(), conditions={"chunk_room": False})["divergence"]
    lines = looked_for("chunk room", [found], lambda each: "Out of memory" in each["line"])
    review("chunk room", FINDING, lines and lines[0])
