"""Every list of switches is legal, gives the same each time, and together they give every order there is."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.virtual import (
    EAGER,
    Interleaving,
    Launch,
    Machine,
    Switch,
    drawn,
    explore,
    installed,
    late,
    launch,
    running,
)

SWITCHES = st.lists(st.builds(Switch, st.integers(0, 60), st.frozensets(st.integers(0, 5))), max_size=6)


def relay() -> list[int]:
    """Two streams hand a value back and forth through events, and a third looks on without any."""
    cell = torch.zeros(3, dtype=torch.int64, device="cuda")
    one, two, looker = (torch.cuda.Stream() for _ in range(3))
    for stream in (one, two, looker):
        stream.wait_stream(torch.cuda.current_stream())
    seen = []
    for _ in range(3):
        with torch.cuda.stream(one):
            one.wait_stream(two)
            cell += 1
        with torch.cuda.stream(two):
            two.wait_stream(one)
            cell *= 2
        with torch.cuda.stream(looker):
            seen.append(cell.clone())
    torch.cuda.synchronize()
    return [one.tolist()[0] for one in seen] + [cell.tolist()[0]]


def run(interleaving: Interleaving) -> tuple[list[int], list[tuple[int, int, int]]]:
    """What the relay gives, and the order in which it ran."""
    machine = Machine(interleaving, keep_trace=True)
    with torch.inference_mode(), installed(), machine.running():
        result = relay()
    ran = sorted(machine.trace, key=lambda operation: (operation.ran_at, operation.number))
    return result, [(operation.place, operation.position, operation.ran_at) for operation in ran]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(SWITCHES)
def test_every_list_of_switches_keeps_the_edges_and_replays(switches: list[Switch]) -> None:
    interleaving = Interleaving(tuple(switches))
    result, order = run(interleaving)
    assert run(interleaving) == (result, order)
    assert result[-1] == 14
    places: dict[int, int] = {}
    for place, position, _ in order:
        assert position == places.get(place, 0) + 1, "a stream runs in its own order"
        places[place] = position


def test_what_is_late_runs_only_when_it_must() -> None:
    with torch.inference_mode(), installed(), Machine(late(1), keep_trace=True).running() as machine:
        slow, fast = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(slow):
            torch.zeros(2, device="cuda")
        with torch.cuda.stream(fast):
            torch.zeros(2, device="cuda")
        assert [operation.stream() for operation in machine.trace if operation.ran_at >= 0] == [2]
        fast.synchronize()
        assert [operation.stream() for operation in machine.trace if operation.ran_at >= 0] == [2]
        slow.synchronize()
    assert [operation.stream() for operation in machine.trace] == [1, 2]


def appending(counts: list[int], fenced: bool = False) -> Callable[[], int]:
    """Streams append their number to a log, so many times each; what comes out tells the order."""

    def program() -> int:
        log = torch.zeros(1, dtype=torch.int64, device="cuda")
        streams = [torch.cuda.Stream() for _ in counts]
        torch.cuda.synchronize()
        for number, (stream, count) in enumerate(zip(streams, counts, strict=True)):
            if fenced and number:
                stream.wait_stream(streams[number - 1])
            with torch.cuda.stream(stream):
                for _ in range(count):
                    launch("append", Launch(lambda number=number: log.shadow.mul_(10).add_(number + 1), [], [log]))
        torch.cuda.synchronize()
        return log.tolist()[0]

    return program


@pytest.mark.parametrize("counts", [[1], [1, 1], [2, 1], [2, 2], [1, 1, 1], [2, 1, 1], [1, 1, 1, 1], [3, 3]])
def test_exploring_finds_every_order_that_makes_a_difference(counts: list[int]) -> None:
    """And each once: as many as there are ways to shuffle the streams."""
    with torch.inference_mode(), installed():
        found = explore(running(appending(counts)), bound=3000)
    shuffles = math.factorial(sum(counts)) // math.prod(map(math.factorial, counts))
    assert found.complete
    assert len({result for _, result in found.interleavings}) == len(found.interleavings) == shuffles


def test_what_is_ordered_has_one_order() -> None:
    with torch.inference_mode(), installed():
        found = explore(running(appending([2, 2, 2], fenced=True)))
    assert (found.complete, len(found.interleavings), found.runs) == (True, 1, 1)


def test_exploring_turns_the_host_and_a_copy_round() -> None:
    """The host reads a pinned target before the copy, or after: nothing else makes a difference."""

    def program() -> int:
        target, cell = torch.zeros(1, dtype=torch.int64, pin_memory=True), torch.ones(1, dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        target.copy_(cell, non_blocking=True)
        return target.tolist()[0]

    with torch.inference_mode(), installed():
        found = explore(running(program))
    assert sorted(result for _, result in found.interleavings) == [0, 1]


def test_an_explored_interleaving_replays() -> None:
    with torch.inference_mode(), installed():
        for interleaving, result in explore(running(appending([2, 1]))).interleavings:
            with Machine(interleaving).running():
                assert appending([2, 1])() == result


def test_what_is_not_explored_is_said() -> None:
    with torch.inference_mode(), installed():
        found = explore(running(appending([1, 1, 1, 1])), bound=5)
    assert found.runs == 5
    assert not found.complete


def test_drawn_interleavings_hold_some_stream_and_are_within_the_run() -> None:
    for seed in range(50):
        found = drawn(random.Random(seed).randint, 100)
        assert found == drawn(random.Random(seed).randint, 100)
        assert found.switches[0].at == 0
        assert all(0 <= switch.at <= 100 for switch in found.switches)
    assert EAGER.switches == ()
