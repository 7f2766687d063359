"""What stands in for kernels at scheduler level on a CPU does what SGLang's own kernels do, beyond the end of a row too."""

from __future__ import annotations

CASES = 40


def test_torch_versions_equal_the_kernels(kernel_runner, seed: int) -> None:
    assert kernel_runner.job("kernel_stand_ins", seed=seed, count=CASES) == []
