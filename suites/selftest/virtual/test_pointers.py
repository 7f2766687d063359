"""A kernel that follows a raw pointer: what it reads through it is known where the launch declares it, and only there."""

from __future__ import annotations

import pytest
import torch

from fixtures.virtual import Launch, Machine, installed, launch, pointed_at
from fixtures.virtual.interleaving import late


def read_through_a_pointer(wait: bool, free: bool = False) -> tuple[int, list[str]]:
    """What a kernel on one stream reads through a pointer to another stream's tensor, and which kinds of race that is."""
    with installed(), Machine(late(2)).running() as machine:
        writer, reader = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(writer):
            tensor = torch.full((4,), 3, dtype=torch.int64, device="cuda")
        address = tensor[1:].data_ptr()
        reader.wait_stream(writer)
        with torch.cuda.stream(reader):
            out = torch.empty(2, dtype=torch.int64, device="cuda")

            def what() -> list:
                return [pointed_at(address, torch.int64, 2)]

            work = Launch(lambda: out.shadow.copy_(what()[0][1]), [], [out], pointed_read=lambda: [touch for touch, _ in what()])
            launch("follow", work)
        if free:
            del tensor
        with torch.cuda.stream(writer):
            if wait:
                writer.wait_stream(reader)
            if free:
                tensor = torch.full((4,), 9, dtype=torch.int64, device="cuda")
            else:
                tensor.fill_(9)
        torch.cuda.synchronize()
        return out.tolist()[0], [race.kind for race in machine.races]


def test_it_reads_what_lies_there() -> None:
    assert read_through_a_pointer(wait=True) == (3, [])


def test_a_write_that_does_not_wait_for_it_is_a_race() -> None:
    assert read_through_a_pointer(wait=False)[1] == ["race"]


def test_memory_that_is_freed_under_it_is_a_lifetime() -> None:
    assert read_through_a_pointer(wait=False, free=True)[1] == ["lifetime"]


def test_an_address_that_nobody_gave_out_is_refused() -> None:
    with installed(), Machine().running(), pytest.raises(ValueError, match="where no tensor of this device begins"):
        pointed_at(12345, torch.int64, 1)
