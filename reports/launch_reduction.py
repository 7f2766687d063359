"""Make a kernel launch that differs from the oracle small: fewer rows, columns and bits, with the same kind of difference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from fixtures.guarded import span
from fixtures.kinds import kind_of
from fixtures.launch import Held, Launch, Layout, as_bits, right_values

ONE_BY_ONE = 64  # numbers of a tensor that are tried each for itself


def reduce_launch(
    launch: Launch, failure: dict, attempt: Callable[[Launch], dict | None], seconds: float
) -> tuple[Launch, dict, bool]:
    """The smallest launch found of the kind of `failure`, what it shows, and whether no step makes it smaller.

    attempt: makes a launch and gives its difference, or None.
    """
    deadline, kind = time.monotonic() + seconds, kind_of(failure)
    # What is to be refused for its layout keeps all of it: smaller, it may have no gap to be refused for.
    steps = (lay_out_plainly, lower_numbers) if launch.refuses else STEPS
    again = True
    while again:
        again = False
        for step in steps:
            for smaller in step(launch):
                if time.monotonic() > deadline:
                    return launch, failure, False
                found = attempt(smaller) if _is_legal(smaller) else None
                if found is not None and kind_of(found) == kind:
                    launch, failure, again = smaller, found, True
                    break
            if again:
                break
    return launch, failure, True


def _is_legal(launch: Launch) -> bool:
    """Whether a caller could make it: what is right of it is defined."""
    try:
        right_values(launch)
    except (IndexError, RuntimeError):
        return False
    return True


# -- steps: each proposes smaller launches, the boldest first ----------------------------------------------


def lay_out_plainly(launch: Launch) -> Iterator[Launch]:
    for name, held in launch.inputs.items():
        if held is not None and not held.is_plain() and name != launch.refuses:
            yield launch.with_input(name, held.view())
            yield replace(launch, inputs=launch.inputs | {name: _trimmed(held)})


def drop_requests(launch: Launch) -> Iterator[Launch]:
    names = launch.signature().rows
    for gone in _blocks(launch.requests()):
        keep = [row for row in range(launch.requests()) if row not in gone]
        inputs = {name: Held.plain(launch.inputs[name].view()[keep]) for name in names}
        outputs = {name: Layout.plain(one.dtype, (len(keep), *one.shape[1:])) for name, one in launch.outputs.items()}
        if keep:
            yield replace(launch, inputs=launch.inputs | inputs, outputs=outputs)


def narrow_the_block(launch: Launch) -> Iterator[Launch]:
    """Columns at the end of everything that is as wide as the draft block."""
    wide = {name: one for name, one in launch.outputs.items() if len(one.shape) == 2}
    if not wide:
        return
    block = next(iter(wide.values())).shape[1]
    inputs = [name for name in ("candidates", "target_top1") if name in launch.inputs]
    for columns in sorted({1, block // 2, block - 1} - {0, block}):
        outputs = {name: Layout.plain(one.dtype, (one.shape[0], columns)) for name, one in wide.items()}
        narrow = {name: Held.plain(launch.inputs[name].view()[:, :columns]) for name in inputs}
        yield replace(launch, inputs=launch.inputs | narrow, outputs=launch.outputs | outputs)


def shrink_the_buffers(launch: Launch) -> Iterator[Launch]:
    """Rows and columns at the end of what is read by index, and a buffer that may be absent."""
    for name, held in launch.inputs.items():
        if held is None or name in launch.signature().rows:
            continue
        if name == "hidden_states_buf":
            yield replace(launch, inputs=launch.inputs | {name: None})
        view = held.view()
        for axis, size in enumerate(view.shape):
            for length in sorted({1, size // 2, size - 1} - {0, size}):
                yield launch.with_input(name, view.narrow(axis, 0, length))


def lower_numbers(launch: Launch) -> Iterator[Launch]:
    """Every number of every tensor to 0, 1, its half and one less; all at once first."""
    for name, held in launch.inputs.items():
        if held is None or not held.is_plain():
            continue
        bits = as_bits(held.buffer)
        if bits.any():
            yield _with_bits(launch, name, torch.zeros_like(bits))
        if len(bits) > ONE_BY_ONE:
            continue
        for place, number in enumerate(bits.tolist()):
            for lower in sorted({0, 1, number // 2, number - 1} if number > 0 else {0, -1, int(number / 2)}, key=abs):
                if abs(lower) < abs(number):
                    changed = bits.clone()
                    changed[place] = lower
                    yield _with_bits(launch, name, changed)
    for name, number in launch.scalars.items():
        for lower in sorted({0, 1, number // 2, number - 1}):
            if 0 <= lower < number:
                yield replace(launch, scalars=launch.scalars | {name: lower})


STEPS = (drop_requests, narrow_the_block, shrink_the_buffers, lay_out_plainly, lower_numbers)


def _blocks(count: int) -> Iterator[range]:
    size = count // 2
    while size:
        yield from (range(start, min(start + size, count)) for start in range(0, count, size))
        size //= 2


def _trimmed(held: Held) -> Held:
    """The same view of no more memory than it spans."""
    end = held.offset + span(held.shape, held.stride)
    return Held(held.buffer[held.offset : end].clone(), held.shape, held.stride, 0)


def _with_bits(launch: Launch, name: str, bits: torch.Tensor) -> Launch:
    held = launch.inputs[name]
    return replace(launch, inputs=launch.inputs | {name: replace(held, buffer=bits.view(held.buffer.dtype))})
