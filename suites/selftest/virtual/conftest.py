"""The same test on simulated streams and, with a GPU, on real ones: it says what `torch.cuda` does, and holds streams with `_sleep`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from fixtures.virtual import Machine, installed


@pytest.fixture(params=["virtual", pytest.param("real", marks=pytest.mark.cuda)])
def streams(request: pytest.FixtureRequest) -> Iterator[str]:
    """While open, `torch.cuda` has the streams that are meant, and nothing is queued."""
    with torch.inference_mode():
        if request.param == "virtual":
            with installed(), Machine().running():
                yield request.param
            return
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        yield request.param
        torch.cuda.synchronize()
