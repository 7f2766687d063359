"""What CUDA's streams and events promise, and what they do not, seen in values."""

from __future__ import annotations

import pytest
import torch

LONG = 200_000_000  # cycles: about a tenth of a second
pytestmark = pytest.mark.usefixtures("streams")


def zeros() -> torch.Tensor:
    """A cell that every stream may use from now on."""
    cell = torch.zeros(4, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    return cell


def write_late(cell: torch.Tensor, stream: torch.cuda.Stream, value: int = 1) -> None:
    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        cell.fill_(value)


def seen_by(stream: torch.cuda.Stream, cell: torch.Tensor) -> int:
    """What an operation on `stream` finds in the cell."""
    with torch.cuda.stream(stream):
        copy = cell.clone()
    stream.synchronize()
    return copy.tolist()[0]


def two_streams() -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    return torch.cuda.Stream(), torch.cuda.Stream()


def test_a_stream_keeps_its_order() -> None:
    stream, _ = two_streams()
    cell = zeros()
    write_late(cell, stream)
    assert seen_by(stream, cell) == 1


def test_streams_do_not_wait_for_each_other() -> None:
    writer, reader = two_streams()
    cell = zeros()
    write_late(cell, writer)
    assert seen_by(reader, cell) == 0
    assert seen_by(writer, cell) == 1


def test_wait_stream_orders_what_comes_later() -> None:
    writer, reader = two_streams()
    cell = zeros()
    write_late(cell, writer)
    reader.wait_stream(writer)
    assert seen_by(reader, cell) == 1


def test_wait_stream_does_not_order_what_the_other_stream_gets_later() -> None:
    writer, reader = two_streams()
    cell = zeros()
    reader.wait_stream(writer)
    write_late(cell, writer)
    assert seen_by(reader, cell) == 0


def test_an_event_orders_what_was_before_it() -> None:
    writer, reader = two_streams()
    cell = zeros()
    write_late(cell, writer)
    reader.wait_event(writer.record_event())
    assert seen_by(reader, cell) == 1


def test_an_event_recorded_too_early_orders_nothing() -> None:
    writer, reader = two_streams()
    cell = zeros()
    early = writer.record_event()
    write_late(cell, writer)
    reader.wait_event(early)
    assert seen_by(reader, cell) == 0


def test_an_event_recorded_again_stands_for_the_new_point_alone() -> None:
    writer, reader = two_streams()
    idle, cell = torch.cuda.Stream(), zeros()
    write_late(cell, writer)
    event = writer.record_event()
    event.record(idle)
    reader.wait_event(event)
    assert seen_by(reader, cell) == 0


def test_a_wait_keeps_the_point_that_the_event_had_when_it_was_made() -> None:
    writer, reader = two_streams()
    idle, cell = torch.cuda.Stream(), zeros()
    write_late(cell, writer)
    event = writer.record_event()
    reader.wait_event(event)
    event.record(idle)
    assert seen_by(reader, cell) == 1


def test_nobody_waits_for_an_event_that_was_not_recorded() -> None:
    writer, reader = two_streams()
    cell, event = zeros(), torch.cuda.Event()
    write_late(cell, writer)
    reader.wait_event(event)
    assert event.query()
    event.synchronize()
    assert seen_by(reader, cell) == 0


def test_an_event_without_a_stream_is_about_the_current_one() -> None:
    writer, reader = two_streams()
    cell, event = zeros(), torch.cuda.Event()
    with torch.cuda.stream(writer):
        torch.cuda._sleep(LONG)
        cell.fill_(1)
        event.record()
    with torch.cuda.stream(reader):
        event.wait()
    assert seen_by(reader, cell) == 1


def test_waiting_is_transitive() -> None:
    writer, reader = two_streams()
    between, cell = torch.cuda.Stream(), zeros()
    write_late(cell, writer)
    between.wait_stream(writer)
    reader.wait_event(between.record_event())
    assert seen_by(reader, cell) == 1


def test_the_default_stream_waits_for_no_other() -> None:
    writer, _ = two_streams()
    cell = zeros()
    write_late(cell, writer)
    assert seen_by(torch.cuda.default_stream(), cell) == 0


def test_no_stream_waits_for_the_default_one() -> None:
    _, reader = two_streams()
    cell = zeros()
    write_late(cell, torch.cuda.default_stream())
    assert seen_by(reader, cell) == 0


def test_an_event_is_over_when_the_host_has_waited() -> None:
    writer, _ = two_streams()
    write_late(zeros(), writer)
    event = writer.record_event()
    assert not event.query()
    assert not writer.query()
    event.synchronize()
    assert event.query()
    assert writer.query()


def test_the_host_waits_for_no_more_than_the_event() -> None:
    writer, _ = two_streams()
    event = torch.cuda.Event()
    with torch.cuda.stream(writer):
        torch.cuda._sleep(1000)
        event.record()
        torch.cuda._sleep(LONG)
    event.synchronize()
    assert not writer.query()


def test_what_the_host_waited_for_is_before_all_that_it_asks_for_later() -> None:
    writer, reader = two_streams()
    cell = zeros()
    write_late(cell, writer)
    writer.synchronize()
    assert seen_by(reader, cell) == 1


def test_contexts_nest_and_give_the_stream_back() -> None:
    outer, inner = two_streams()
    default = torch.cuda.current_stream()
    with torch.cuda.stream(outer):
        with torch.cuda.stream(inner):
            assert torch.cuda.current_stream() == inner
            with torch.cuda.stream(None):
                assert torch.cuda.current_stream() == inner
        assert torch.cuda.current_stream() == outer
        with inner:
            assert torch.cuda.current_stream() == inner
    assert torch.cuda.current_stream() == default == torch.cuda.default_stream()
    assert inner != outer
