"""A race is reported with both its places, in every order of things, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from fixtures.virtual import EAGER, Interleaving, Launch, Machine, Race, Switch, VirtualTensor, installed, late, launch
from fixtures.virtual.block import POISON
from suites.selftest.virtual.test_lifetime_rules import read_after_free

ORDERS = [EAGER, late(0), late(1), late(2), Interleaving((Switch(3, frozenset({1})), Switch(9, frozenset({2}))))]


def races_of(program: Callable[[], object], interleaving: Interleaving = EAGER) -> list[Race]:
    machine = Machine(interleaving)
    with torch.inference_mode(), installed(), machine.running():
        program()
    return machine.races


def rows(write: list[int], read: list[int], fence: bool = False, both_read: bool = False) -> Callable[[], None]:
    """One stream writes rows of a buffer, another reads some."""

    def program() -> None:
        buffer = torch.zeros(16, dtype=torch.int64, device="cuda")
        writing, reading = torch.tensor(write, device="cuda"), torch.tensor(read, device="cuda")
        writer, reader = torch.cuda.Stream(), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(writer):
            if both_read:
                buffer[writing]
            else:
                buffer[writing] = 1
        if fence:
            reader.wait_stream(writer)
        with torch.cuda.stream(reader):
            buffer[reading]

    return program


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_edge_is_reported_with_both_places_in_any_order(order: Interleaving) -> None:
    (race,) = races_of(rows([1, 2, 3], [3, 4]), order)
    assert race.kind == "race"
    assert (race.first_writes, race.second_writes) == (True, False)
    assert race.elements() == [3]
    assert race.memory == "int64[16]"
    assert [side.sites()[0].function for side in (race.first, race.second)] == ["program", "program"]
    lines = [side.sites()[0].line for side in (race.first, race.second)]
    assert lines[0] < lines[1]
    assert {side.sites()[0].file for side in (race.first, race.second)} == {__file__}
    assert [side.stream() for side in (race.first, race.second)] == [1, 2]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "program",
    [rows([1, 2], [3, 4]), rows([1], [1], fence=True), rows([1], [1], both_read=True)],
    ids=["other rows", "with an edge", "two reads"],
)
def test_what_cannot_race_is_not_reported(program: Callable, order: Interleaving) -> None:
    assert races_of(program, order) == []


@pytest.mark.parametrize(
    "make", [torch.empty_like, torch.zeros_like, lambda t: torch.full_like(t, 3), lambda t: t.new_zeros(2), lambda t: t.new_empty(2)]
)
def test_what_is_made_in_a_tensors_likeness_does_not_read_it(make: Callable) -> None:
    def program() -> None:
        cell = torch.zeros(4, device="cuda")
        writer, maker = torch.cuda.Stream(), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(writer):
            cell.fill_(1)
        with torch.cuda.stream(maker):
            make(cell)
            torch.zeros_like(cell, device="cpu")

    assert races_of(program) == []


def test_a_race_that_goes_on_is_one_report() -> None:
    def program() -> None:
        cell = torch.zeros(4, device="cuda")
        writer, reader = torch.cuda.Stream(), torch.cuda.Stream()
        torch.cuda.synchronize()
        for _ in range(5):
            with torch.cuda.stream(writer):
                cell.fill_(1)
            with torch.cuda.stream(reader):
                cell.clone()

    found = races_of(program)
    assert [(race.first.name, race.second.name) for race in found] == [("fill_", "clone"), ("clone", "fill_")]
    assert [race.times for race in found] == [15, 10]


def columns(first: int, second: int) -> Callable[[], None]:
    def program() -> None:
        table = torch.zeros((4, 6), dtype=torch.int32, device="cuda")
        one, other = torch.cuda.Stream(), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(one):
            table[:, first] = 1
        with torch.cuda.stream(other):
            table[:, second].clone()

    return program


def test_strided_columns_are_told_apart() -> None:
    assert races_of(columns(1, 2)) == []
    (race,) = races_of(columns(1, 1))
    assert race.elements() == [1, 7, 13, 19]


def test_views_of_other_widths_meet_in_the_same_bytes() -> None:
    def program() -> None:
        whole = torch.zeros(4, dtype=torch.int64, device="cuda")
        writer, reader = torch.cuda.Stream(), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(writer):
            whole[2:3].fill_(1)
        with torch.cuda.stream(reader):
            whole.view(torch.int32)[5:].clone()

    (race,) = races_of(program)
    assert race.elements() == [2]


@pytest.mark.parametrize("synchronized", [False, True])
def test_the_host_races_with_a_copy_that_it_did_not_wait_for(synchronized: bool) -> None:
    def program() -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            copy = torch.ones(4, device="cuda").to("cpu", non_blocking=True)
        if synchronized:
            stream.synchronize()
        copy.tolist()

    races = races_of(program)
    assert len(races) == (not synchronized)
    if races:
        assert (races[0].first.stream(), races[0].second.stream()) == (1, None)
        assert races[0].memory.startswith("pinned")


@pytest.mark.parametrize("synchronized", [False, True])
def test_a_pinned_source_that_is_changed_too_early_is_reported(synchronized: bool) -> None:
    def program() -> None:
        source, stream = torch.ones(4, pin_memory=True), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            source.to("cuda", non_blocking=True)
        if synchronized:
            stream.synchronize()
        source.fill_(2)

    assert len(races_of(program)) == (not synchronized)


@pytest.mark.parametrize(
    ("how", "found"), [({}, 1), ({"keep": True}, 0), ({"record": True}, 0), ({"wait": True}, 0)], ids=["freed", "kept", "recorded", "waited"]
)
@pytest.mark.parametrize("order", ORDERS)
def test_memory_that_is_given_on_too_early_is_reported(how: dict, found: int, order: Interleaving) -> None:
    races = races_of(lambda: read_after_free(**how), order)
    assert [race.kind for race in races] == ["lifetime"] * found


def test_an_edge_from_before_the_write_is_none() -> None:
    """An event stands for what was before it, and for nothing that its stream got later."""

    def program() -> None:
        cell = torch.zeros(4, device="cuda")
        writer, reader = torch.cuda.Stream(), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(writer):
            torch.zeros(1, device="cuda")
            early = writer.record_event()
            cell.fill_(1)
        reader.wait_event(early)
        with torch.cuda.stream(reader):
            cell.clone()

    assert [race.kind for race in races_of(program)] == ["race"]


@pytest.mark.parametrize("order", ORDERS)
def test_a_small_tensor_in_freed_memory_takes_all_of_it(order: Interleaving) -> None:
    """It could as well have been a large one: who still reads is told, and finds poison where it is late."""
    seen = []

    def program() -> None:
        owner, reader = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(owner):
            tensor = torch.full((64,), 3, device="cuda")
        reader.wait_stream(owner)
        with torch.cuda.stream(reader):
            torch.cuda._sleep(1)
            copy = tensor[40:].clone()
        del tensor
        with torch.cuda.stream(owner):
            torch.full((8,), 9, device="cuda")
        owner.synchronize()
        torch.cuda.synchronize()
        seen.extend(copy.tolist())

    assert [race.kind for race in races_of(program, order)] == ["lifetime"]
    assert set(seen) == {int.from_bytes(bytes([POISON]) * 8, "little")}


def test_the_allocator_gives_out_first_what_is_still_in_use() -> None:
    def program() -> None:
        owner, reader = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(owner):
            used, unused = torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")
        reader.wait_stream(owner)
        with torch.cuda.stream(reader):
            used.clone()
        del used
        del unused  # the last that was freed, and so the one at hand
        with torch.cuda.stream(owner):
            torch.zeros(8, device="cuda")

    assert [race.kind for race in races_of(program)] == ["lifetime"]


def test_a_kernel_is_checked_by_what_it_declares() -> None:
    def program() -> None:
        source, target = torch.zeros(8, device="cuda"), torch.zeros(8, device="cuda")
        kernel, writer = torch.cuda.Stream(), torch.cuda.Stream()
        torch.cuda.synchronize()
        assert isinstance(source, VirtualTensor)
        with torch.cuda.stream(kernel):
            partly_read, partly_written = [(source, lambda: torch.tensor([2, 3]))], [(target, lambda: torch.tensor([5]))]
            launch("doubles", Launch(lambda: None, [], [], partly_read, partly_written))
        with torch.cuda.stream(writer):
            source[:3].fill_(1)
            source[4:].fill_(1)
            target[4:].clone()

    read, written = races_of(program)
    assert (read.elements(), written.elements()) == ([2], [5])
    assert (read.first.name, written.first.name) == ("doubles", "doubles")
    assert (read.first_writes, written.first_writes) == (False, True)


def test_a_kernel_may_not_touch_what_is_not_there() -> None:
    def program() -> None:
        source = torch.zeros(8, device="cuda")
        launch("reads on", Launch(lambda: None, [], [], [(source, lambda: torch.tensor([999]))]))

    with pytest.raises(IndexError, match="element 999"):
        races_of(program)
