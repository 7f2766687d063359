"""Who gets memory that was freed, and who is still reading it then."""

from __future__ import annotations

import pytest
import torch

from suites.selftest.virtual.test_stream_rules import LONG, two_streams

pytestmark = pytest.mark.usefixtures("streams")
MINE, OTHERS = 3, 9


def read_after_free(keep: bool = False, record: bool = False, wait: bool = False) -> int:
    """What a stalled stream reads from a tensor of another stream, which that one frees and allocates again at once."""
    owner, reader = two_streams()
    with torch.cuda.stream(owner):
        tensor = torch.full((64,), MINE, dtype=torch.int64, device="cuda")
    reader.wait_stream(owner)
    with torch.cuda.stream(reader):
        copy = torch.empty(64, dtype=torch.int64, device="cuda")
        torch.cuda._sleep(LONG)
        copy.copy_(tensor)
    if record:
        tensor.record_stream(reader)
    kept = tensor if keep else None
    del tensor
    with torch.cuda.stream(owner):
        if wait:
            owner.wait_stream(reader)
        torch.full((64,), OTHERS, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    del kept
    return copy.tolist()[0]


def test_freed_memory_goes_to_the_next_tensor_of_its_stream() -> None:
    assert read_after_free() == OTHERS


def test_a_held_reference_keeps_it() -> None:
    assert read_after_free(keep=True) == MINE


def test_record_stream_keeps_it_until_that_stream_is_through() -> None:
    assert read_after_free(record=True) == MINE


def test_a_stream_that_waits_before_it_writes_does_no_harm() -> None:
    assert read_after_free(wait=True) == MINE


def test_memory_is_not_given_to_another_stream() -> None:
    owner, other = two_streams()
    with torch.cuda.stream(owner):
        tensor = torch.full((64,), MINE, dtype=torch.int64, device="cuda")
        copy = torch.empty(64, dtype=torch.int64, device="cuda")
        torch.cuda._sleep(LONG)
        copy.copy_(tensor)
    del tensor
    with torch.cuda.stream(other):
        torch.full((64,), OTHERS, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    assert copy.tolist()[0] == MINE


def test_a_view_keeps_the_whole() -> None:
    owner, _ = two_streams()
    with torch.cuda.stream(owner):
        part = torch.full((64,), MINE, dtype=torch.int64, device="cuda")[10:20]
        torch.full((64,), OTHERS, dtype=torch.int64, device="cuda")
        assert part.tolist() == [MINE] * 10
