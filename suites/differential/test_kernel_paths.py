"""The same promise where SGLang's worker lays out its blocks and accepts with Triton kernels, at scheduler level."""

from __future__ import annotations

import pytest

SCHEDULES = 8  # Triton's interpreter takes some 20 ms an iteration


def test_kernel_paths_are_bitwise_identical(levels: tuple[str, ...], seed: int, runner_for, tally) -> None:
    if "scheduler" not in levels:
        pytest.skip("SGLang's worker is not run: --level relay")
    tally.merge(runner_for("kernel", "scheduler").seeded(seed, 0, SCHEDULES).to_dict() | {"shapes": []})
    for failure in tally.failures:
        pytest.fail(f"{failure['verdict']} {failure['line']}\n  schedule: {failure['schedule']}", pytrace=False)
