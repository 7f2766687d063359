"""Inputs in every layout that SGLang's callers hold them in, and outputs that show a stray or a missing write."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

POISON = b"\xa5"  # every byte of it: negative as an integer, so no id, length or location equals it
INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Guarded:
    """`tensor` is contiguous and lies in poisoned memory, as a worker's buffer sliced to the batch does."""

    LEAD, TAIL = 64, 4096  # elements; the lead keeps the alignment of a fresh allocation

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str | None) -> None:
        inside = slice(self.LEAD, self.LEAD + math.prod(shape))
        memory = torch.empty(inside.stop + self.TAIL, dtype=dtype, device=device)
        self.tensor = memory[inside].view(shape)
        self._bits = memory.view(INTEGERS[memory.itemsize])
        self._poison = int.from_bytes(POISON * memory.itemsize, signed=True)
        self._bits.fill_(self._poison)
        self._inside = inside

    def stray_writes(self) -> list[int]:
        """Offsets, in elements from the start of `tensor`, of what was written outside it."""
        written = self._bits != self._poison
        written[self._inside] = False
        return (written.nonzero()[:, 0] - self.LEAD).tolist()

    def assert_untouched(self) -> None:
        assert (self._bits == self._poison).all(), "nothing was to be written"


class GuardedAllocations(TorchDispatchMode):
    """While it is entered, uninitialized memory comes poisoned and guarded."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Guarded] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is not torch.ops.aten.empty.memory_format or not math.prod(args[0]):
            return func(*args, **kwargs)
        self.given.append(Guarded(tuple(args[0]), kwargs.get("dtype"), kwargs.get("device")))
        return self.given[-1].tensor


@pytest.fixture
def guarded(device: str) -> Callable[[tuple[int, ...], torch.dtype], Guarded]:
    return partial(Guarded, device=device)


@pytest.fixture
def guarded_allocations() -> type[GuardedAllocations]:
    return GuardedAllocations


def _front(values: torch.Tensor) -> torch.Tensor:
    buffer = values.new_zeros(len(values) + 5)
    buffer[: len(values)] = values
    return buffer[: len(values)]


def _behind_another(values: torch.Tensor) -> torch.Tensor:
    buffer = values.new_zeros(len(values) + 1)
    buffer[1:] = values
    return buffer[1:]


def _column(values: torch.Tensor) -> torch.Tensor:
    buffer = values.new_zeros(len(values), 3)
    buffer[:, 1] = values
    return buffer[:, 1]


LAYOUTS = {
    "gathered": torch.clone,
    "front of a buffer": _front,
    "one element into a buffer": _behind_another,
    "column": _column,
}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> Callable[[torch.Tensor], torch.Tensor]:
    """Makes a 1-D tensor a view with the same values; what surrounds them is 0."""
    return LAYOUTS[request.param]
