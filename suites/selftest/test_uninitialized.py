"""What nobody wrote reads the same in every run, and nothing else of torch's functions changes."""

from __future__ import annotations

import pytest
import torch

from fixtures.contained import in_a_fork
from fixtures.uninitialized import fill_uninitialized


def like(given: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(given)


def patched(work) -> object:
    """What `work` gives in a process in which the functions are in place."""

    def patch_and_work() -> object:
        fill_uninitialized()
        return work()

    return in_a_fork(patch_and_work, 60)


@pytest.mark.parametrize(("dtype", "value"), [(torch.int32, 2**31 - 1), (torch.int64, 2**63 - 1), (torch.bool, True)])
def test_unwritten_elements_have_the_largest_value(dtype: torch.dtype, value: int) -> None:
    def made() -> list:
        given = torch.zeros(2, dtype=dtype)
        return [torch.empty(2, dtype=dtype).tolist(), given.new_empty(2).tolist(), torch.empty_like(given).tolist()]

    assert patched(made) == [[value, value]] * 3


def test_unwritten_numbers_are_none() -> None:
    assert patched(lambda: torch.empty(2, dtype=torch.bfloat16).isnan().tolist()) == [True, True]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(2, requires_grad=True).requires_grad,
        lambda: torch.empty(2, device="meta").is_meta,
        lambda: torch.empty(2, layout=torch.sparse_coo).is_sparse,
        lambda: torch.empty(2, dtype=torch.int4).shape == (2,),
        lambda: torch._empty_affine_quantized([2], scale=1.0, zero_point=0, dtype=torch.qint8).new_empty(2).is_quantized,
        lambda: torch.jit.script(like)(torch.ones(2)).shape == (2,),
    ],
    ids=["gradient", "meta", "sparse", "four bits", "quantized", "script"],
)
def test_whatever_else_torch_makes_is_made(make) -> None:
    assert patched(make) is True


def test_memory_that_is_given_keeps_its_values() -> None:
    assert patched(lambda: torch.empty(2, out=torch.ones(2)).tolist()) == [1.0, 1.0]
