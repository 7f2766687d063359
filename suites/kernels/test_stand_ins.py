"""What stands in for kernels at scheduler level, on a CPU and on simulated streams, does what SGLang's own kernels do, beyond the end of a row too."""

from __future__ import annotations

import pytest

CASES = 40


def test_torch_versions_equal_the_kernels(kernel_runner, seed: int) -> None:
    assert kernel_runner.job("kernel_stand_ins", seed=seed, count=CASES) == []


def test_torch_versions_of_the_draft_tree_equal_triton(kernel_runner, seed: int) -> None:
    """SGLang's own are CUDA code; releases have them in Triton as well, for other hardware."""
    found = kernel_runner.job("tree_stand_ins", seed=seed, count=CASES)
    if found is None:
        pytest.skip("this release has the draft tree's kernels as CUDA code alone")
    assert found == []


def test_answers_to_launches_equal_the_kernels(kernel_runner, seed: int) -> None:
    """Raw pointers are followed there as well."""
    assert kernel_runner.job("answered_launches", seed=seed, count=CASES) == []
