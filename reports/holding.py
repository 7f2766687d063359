"""A race that went wrong among other processes may not go wrong alone: then a stream is held long enough that it does."""

from __future__ import annotations

from collections.abc import Iterator

from fixtures.schedule import STALL_POINTS

LONG = 8_000_000  # cycles, some milliseconds: longer than the host takes from any point to the end of an iteration
LIKELY = ("before_publish", "before_stash", "before_copy", "before_forward")


def held_longer(document: dict) -> Iterator[dict]:
    """The schedule with one point held in every iteration, for each point in turn, the likely ones first."""
    for point in (*LIKELY, *(point for point in STALL_POINTS if point not in LIKELY)):
        hold = [{"point": point, "cycles": LONG}]
        yield document | {"iterations": [iteration | {"stalls": hold} for iteration in document["iterations"]]}
