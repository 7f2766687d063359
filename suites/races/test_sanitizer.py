"""PyTorch's CUDA sanitizer as a witness that needs no luck: no two streams touch memory without an edge between them.

It judges from the order that streams and events guarantee, not from what happened to be computed, and sees
PyTorch's operators: neither Triton kernels nor pinned host memory.
"""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("stalls", [0, 25])
def test_no_unsynchronized_access(sanitized_runner, seed: int, stalls: int) -> None:
    """Neither in SGLang's relay nor in this suite's own loop, model or transcript."""
    found = sanitized_runner.job("sanitized", seed=seed, start=0, count=40, stalls=stalls)
    assert found["reports"] == []
    assert found["iterations"] > 500


def test_the_sanitizer_is_awake(sanitized_runner) -> None:
    """It reports a schedule stream that gathers lengths without waiting for the forward that writes them."""
    arguments = {"seed": 1, "start": 0, "count": 2, "stalls": 0}
    found = sanitized_runner.job("planted", fault="resolve-does-not-wait-for-publish", job="sanitized", arguments=arguments)
    assert len(found["reports"]) == 2
    assert all("resolve_seq_lens_cpu" in report for report in found["reports"])
