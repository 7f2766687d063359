"""DFlash and EAGLE share one channel, and one process: neither sees that the other ran before it."""

from __future__ import annotations

import pytest

EACH = 12  # schedules of each algorithm
CHANGES = ("dflash", "eagle", "eagle", "dflash")  # every change of algorithm, and none


def test_eagle_and_dflash_take_turns(levels: tuple[str, ...], looked_for, runner_for, seed: int) -> None:
    """All of one, all of the other, then by turns: the same values each time, and no difference from the oracle.

    The relay allocates by the algorithm that is published when it first stashes, so each run publishes its own.
    """
    if "scheduler" not in levels:
        pytest.skip("SGLang's scheduler is not run: --level relay")
    runner = runner_for("release", "scheduler")
    apart = [[seed, index, shape] for shape in ("dflash", "eagle") for index in range(EACH)]
    turns = [[seed, index, CHANGES[(2 * index + half) % 4]] for index in range(EACH) for half in (0, 1)]
    assert sorted(turns) == sorted(apart)
    found = {name: runner.job("turns", turns=order) for name, order in (("apart", apart), ("turns", turns))}
    looked_for("taking turns", [divergence for divergence, _ in found["apart"]], lambda each: False)
    alone = dict(zip(map(tuple, apart), found["apart"], strict=True))
    for turn, (divergence, digest) in zip(turns, found["turns"], strict=True):
        if digest != alone[tuple(turn)][1]:
            line = f": {divergence['line']}" if divergence else ""
            pytest.fail(f"schedule {turn[1]} ({turn[2]}) has other values after another algorithm's{line}", pytrace=False)
