"""Which of a run's reproducers to open first, and why the others are there."""

from __future__ import annotations

from fixtures.judge import RANKS
from reports.reproducer import Reproducer

MOST_LISTED = 12
BESIDE = {  # the first call that goes wrong, where it is no call of the relay
    "scheduler": "the same with SGLang's own scheduler around the relay",
    "start": "the same, wrong before any relay call",
    "race": "the same, of streams that race",
}


def listed(made: list[Reproducer]) -> list[str]:
    """A line for each, the one to open first in front."""
    if not made:
        return []
    first, *others = sorted(made, key=_place)
    lines = [f"open first   {first.folder}: {_script(first)}; {first.failure['line']}"]
    lines += [f"also         {one.folder}: {why(one, first)}" for one in others[:MOST_LISTED]]
    return lines + ([f"             and {len(others) - MOST_LISTED} more"] if len(others) > MOST_LISTED else [])


def why(one: Reproducer, first: Reproducer) -> str:
    """Why there is one more beside the first, in words."""
    verdict, field, operation, call = one.key
    if call == "check":
        return f"a check that fails, and no schedule stands for it: {field}"
    if call == "launch":
        return f"a kernel that is launched alone: {field} after {operation}"
    if verdict == RANKS:
        return f"two ranks that differ in {field} after {operation}"
    if one.key[:3] == first.key[:3]:
        return BESIDE.get(call, f"the same, and the first call that goes wrong is {call}, not {first.key[3]}")
    at = " with SGLang's own scheduler around the relay" if call == "scheduler" else f", and the first call that goes wrong is {call}"
    return f"another difference, {field} after {operation}{at}"


def _place(one: Reproducer) -> tuple:
    """What was seen to show the fault, what runs without the suite, what is short; the folder makes the order whole."""
    return not one.outcome.shows_it(), not one.flat, one.key[3] in ("check", "launch"), one.iterations, one.lines, str(one.folder)


def _script(one: Reproducer) -> str:
    return f"{'a flat script' if one.flat else 'a script that replays it through the suite'}, {one.outcome.words()}"
