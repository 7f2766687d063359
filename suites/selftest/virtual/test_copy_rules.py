"""When a copy between host and device reads and writes, and who waits for it."""

from __future__ import annotations

import pytest
import torch

from suites.selftest.virtual.test_stream_rules import LONG, two_streams, write_late, zeros

pytestmark = pytest.mark.usefixtures("streams")


def pinned(value: int) -> torch.Tensor:
    return torch.full((4,), value, dtype=torch.int64, pin_memory=True)


def test_what_is_pinned_says_so() -> None:
    assert pinned(1).is_pinned()
    assert torch.tensor([1], pin_memory=True).is_pinned()
    assert torch.ones(2).pin_memory().is_pinned()
    assert not torch.ones(2).is_pinned()
    assert pinned(1).device.type == "cpu"


def test_a_pinned_target_is_written_when_the_copy_runs() -> None:
    stream, _ = two_streams()
    cell, target = zeros(), pinned(7)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        target.copy_(cell, non_blocking=True)
    assert target.tolist() == [7] * 4
    stream.synchronize()
    assert target.tolist() == [0] * 4


def test_a_pinned_source_is_read_when_the_copy_runs() -> None:
    stream, _ = two_streams()
    cell, source = zeros(), pinned(1)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        cell.copy_(source, non_blocking=True)
    source.fill_(2)
    stream.synchronize()
    assert cell.tolist() == [2] * 4


def test_a_pageable_source_is_read_when_the_copy_is_asked_for() -> None:
    stream, _ = two_streams()
    cell, source = zeros(), torch.ones(4, dtype=torch.int64)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        cell.copy_(source, non_blocking=True)
    source.fill_(2)
    stream.synchronize()
    assert cell.tolist() == [1] * 4


def test_a_pageable_target_is_waited_for() -> None:
    stream, _ = two_streams()
    cell, target = zeros(), torch.full((4,), 7)
    write_late(cell, stream)
    with torch.cuda.stream(stream):
        target.copy_(cell, non_blocking=True)
    assert target.tolist() == [1] * 4


def test_to_cpu_without_blocking_gives_pinned_memory_that_is_filled_later() -> None:
    stream, _ = two_streams()
    cell = zeros()
    write_late(cell, stream)
    with torch.cuda.stream(stream):
        copy = cell.to("cpu", non_blocking=True)
    assert copy.is_pinned()
    assert not stream.query()
    stream.synchronize()
    assert copy.tolist() == [1] * 4


@pytest.mark.parametrize(
    "read",
    [
        lambda cell: cell.cpu().tolist(),
        lambda cell: cell.tolist(),
        lambda cell: [cell[0].item()] * 4,
        lambda cell: [int(cell.sum()) // 4] * 4,
        lambda cell: cell.to("cpu").tolist(),
        lambda cell: [len(cell.nonzero()) // 4] * 4,
        lambda cell: [int(bool(cell[0] == 1))] * 4,
    ],
    ids=["cpu", "tolist", "item", "int", "to", "nonzero", "bool"],
)
def test_reading_on_the_host_waits_for_the_current_stream_alone(read) -> None:
    writer, other = two_streams()
    cell, late = zeros(), zeros()
    write_late(late, other)
    write_late(cell, writer)
    with torch.cuda.stream(writer):
        assert read(cell) == [1] * 4


def test_a_blocking_copy_to_the_device_waits_for_the_current_stream() -> None:
    stream, _ = two_streams()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        torch.ones(4).to("cuda")
        assert stream.query()


def test_indexing_with_a_host_list_waits_for_what_was_before_it() -> None:
    """The list is copied from pageable memory, which waits for the stream; the indexing itself is then still to come."""
    stream, _ = two_streams()
    cell = zeros()
    write_late(cell, stream)
    with torch.cuda.stream(stream):
        written = stream.record_event()
        cell[[0, 1]]
        assert written.query()


def test_a_host_scalar_is_read_when_it_is_asked_for() -> None:
    stream, _ = two_streams()
    cell, scalar = zeros(), torch.tensor(5)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        total = cell + scalar
    scalar.fill_(9)
    stream.synchronize()
    assert total.tolist() == [5] * 4
