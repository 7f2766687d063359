"""Passes that make a failing schedule smaller, one step at a time.

They work on the schedule's document with every default spelled out. Each pass is a small function that proposes
smaller documents to a `Search`, which takes those that fail in the same way. The passes go round until a whole
round changes nothing; the last two try every single part and number, so what is left is 1-minimal.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pydantic import ValidationError

from fixtures.kinds import kind_of
from fixtures.schedule import Iteration, Run, Schedule, parse

Document = dict
Path = tuple

PLAIN_ITERATION = Iteration().model_dump(mode="json")
FLAGS = {
    name: field.default
    for part in (Run, Iteration)
    for name, field in part.model_fields.items()
    if isinstance(field.default, bool)
}


def spelled_out(text: str) -> Document:
    """The document with every default in its place. Raises ScheduleError."""
    return parse(text).model_dump(mode="json")


def text_of(document: Document) -> str:
    """The schedule's own form of a document. Raises ValidationError where it is none."""
    return Schedule.model_validate_json(json.dumps(document)).to_json()


class Stopped(Exception):
    """The time is over."""


@dataclass
class Search:
    """The smallest failing document so far, and the way to a smaller one.

    try_schedule: gives the failure of a schedule's text, or None. deadline: on `time.monotonic`'s clock.
    progress: called after each trial.
    """

    best: Document
    failure: dict
    try_schedule: Callable[[str], dict | None]
    deadline: float
    progress: Callable[[Search], None] = lambda search: None
    tried: int = 0
    seen: set[bytes] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.seen.add(_digest(text_of(self.best)))

    def attempt(self, candidate: Document) -> bool:
        """Take `candidate` as the best when it is a schedule and fails in the same way. Raises Stopped."""
        try:
            text = text_of(candidate)
        except ValidationError:
            return False
        digest = _digest(text)
        if digest in self.seen:
            return False
        if time.monotonic() > self.deadline:
            raise Stopped
        failure = self.try_schedule(text)
        self.seen.add(digest)
        self.tried += 1
        same = failure is not None and kind_of(failure) == kind_of(self.failure)
        if same:
            self.best, self.failure = candidate, failure
        self.progress(self)
        return same

    def requests(self) -> list[dict]:
        return self.best["requests"]

    def iterations(self) -> list[dict]:
        return self.best["iterations"]


def to_a_fixpoint(search: Search) -> None:
    """All passes, round after round, until one round changes nothing."""
    while True:
        before = search.best
        for reduce in PASSES:
            reduce(search)
        if search.best is before:
            return


# -- the passes -------------------------------------------------------------------------------------------


def cut_after_divergence(search: Search) -> None:
    """What comes after the first divergence cannot have caused it."""
    last = search.failure["iteration"]
    if last < 0:
        return
    cut = replaced(search.best, ("iterations",), search.iterations()[: last + 1])
    early = [request for request in search.requests() if request["arrive"] <= last]
    search.attempt(replaced(cut, ("requests",), early)) or search.attempt(cut)


def shorten_requests(search: Search) -> None:
    """Prompts, budgets, shared prefixes and arrivals of all requests at once: the least, else half, and half again."""
    for name, least in (("budget", 1), ("prompt", 1), ("shared", 0), ("family", 0), ("arrive", 0)):
        while any(request[name] > least for request in search.requests()):
            if not (search.attempt(_all_requests(search, name, lambda value, low=least: low)) or search.attempt(
                _all_requests(search, name, lambda value, low=least: max(low, value // 2))
            )):
                break


def simplify_patterns(search: Search) -> None:
    """Acceptance patterns of all requests: none, all drafts wrong, the first number alone."""
    for simpler in (lambda pattern: [], lambda pattern: [0], lambda pattern: pattern[:1]):
        if any(len(request["accept"]) > len(simpler(request["accept"])) for request in search.requests()):
            search.attempt(_all_requests(search, "accept", lambda pattern, to=simpler: min(pattern, to(pattern), key=len)))


def drop_requests(search: Search) -> None:
    drop_blocks(search, ("requests",))


def drop_iterations(search: Search) -> None:
    """Blocks of iterations, with later arrivals moved up by as much, and without."""
    drop_blocks(search, ("iterations",), _without_iterations)
    drop_blocks(search, ("iterations",))


def plain_iterations(search: Search) -> None:
    """Blocks of iterations in which nothing is chosen."""
    size = len(search.iterations())
    while size:
        for start in range(len(search.iterations()) - size, -size, -size):
            iterations = search.iterations()
            block = slice(max(0, start), start + size)
            if any(iteration != PLAIN_ITERATION for iteration in iterations[block]):
                plain = [PLAIN_ITERATION] * len(iterations[block])
                search.attempt(replaced(search.best, ("iterations",), spliced(iterations, block, plain)))
        size //= 2


def shrink_run(search: Search) -> None:
    """Every choice of the run at its least at once: flags as nobody sets them, numbers at the lowest there is."""
    flags = {name: value for name, value in FLAGS.items() if name in search.best["run"]}
    least = {"chunk": 0, "eagle": 0, "window": 0, "block_size": 1, "page_size": 1, "slots": 1, "spare_pages": 0}
    for name, value in ({"salt": 0} | flags | least | {"vocab": 2}).items():
        if search.best["run"][name] != value:
            search.attempt(replaced(search.best, ("run", name), value))


def remove_stalls(search: Search) -> None:
    if any(iteration["stalls"] for iteration in search.iterations()):
        bare = [iteration | {"stalls": []} for iteration in search.iterations()]
        search.attempt(replaced(search.best, ("iterations",), bare))


def remove_switches(search: Search) -> None:
    """The order of things: none of its own, then one stream late throughout, then with fewer switches."""
    if not search.best["interleaving"] or search.attempt(search.best | {"interleaving": []}):
        return
    streams = sorted({stream for switch in search.best["interleaving"] for stream in switch["hold"]})
    if len(search.best["interleaving"]) > 1 or len(streams) > 1:
        any(search.attempt(search.best | {"interleaving": [{"at": 0, "hold": [stream]}]}) for stream in streams)
    drop_blocks(search, ("interleaving",))


def renumber(search: Search) -> None:
    """Request ids 0, 1, ... as they stand, or in their order, with the aborts that name them; arrivals likewise."""
    for named in (search.requests(), sorted(search.requests(), key=lambda request: request["id"])):
        ids = {request["id"]: rank for rank, request in enumerate(named)}
        iterations = [
            iteration | {"abort": [ids[identity] for identity in iteration["abort"] if identity in ids]}
            for iteration in search.iterations()
        ]
        requests = [request | {"id": ids[request["id"]]} for request in search.requests()]
        if search.attempt(search.best | {"requests": requests, "iterations": iterations}):
            break
    ranks = {arrive: rank for rank, arrive in enumerate(sorted({request["arrive"] for request in search.requests()}))}
    if any(arrive != rank for arrive, rank in ranks.items()):
        search.attempt(_all_requests(search, "arrive", ranks.__getitem__))


def remove_each(search: Search) -> None:
    """Every single part: list elements, flags, the choice of how many to admit."""
    for path in list(removable(search.best))[::-1]:
        # Later parts first: what an earlier removal shifts has been tried by then.
        search.attempt(without(search.best, path))


def lower_each(search: Search) -> None:
    """Every number: to 0, 1, its half or one less; where its half is too low, to the least that works by halving."""
    for path in list(numbers(search.best)):
        value = at(search.best, path)
        while any(
            search.attempt(replaced(search.best, path, lower)) for lower in (0, 1, value // 2, value - 1) if lower < value
        ):
            value = at(search.best, path)
            low = value // 2
            while value - low > 1:
                middle = (low + value) // 2
                if search.attempt(replaced(search.best, path, middle)):
                    value = middle
                else:
                    low = middle


PASSES = (
    cut_after_divergence,
    shorten_requests,
    drop_requests,
    cut_after_divergence,
    plain_iterations,
    drop_iterations,
    simplify_patterns,
    shrink_run,
    remove_stalls,
    remove_switches,
    renumber,
    remove_each,
    lower_each,
)


# -- documents --------------------------------------------------------------------------------------------


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=12).digest()


def at(document: object, path: Path) -> object:
    for key in path:
        document = document[key]
    return document


def replaced(document: object, path: Path, value: object) -> object:
    """A copy with `value` at `path`; what lies beside the path is shared."""
    if not path:
        return value
    inner = replaced(document[path[0]], path[1:], value)
    if isinstance(document, dict):
        return document | {path[0]: inner}
    return spliced(document, slice(path[0], path[0] + 1), [inner])


def spliced(values: list, block: slice, new: list) -> list:
    return values[: block.start] + new + values[block.stop :]


def removable(document: object, path: Path = ()) -> Iterator[Path]:
    """Paths of list elements, of flags that are set, and of an admission that is limited."""
    if isinstance(document, list):
        for place, inner in enumerate(document):
            yield (*path, place)
            yield from removable(inner, (*path, place))
    elif isinstance(document, dict):
        for name, inner in document.items():
            if name in FLAGS and inner != FLAGS[name] or name == "admit" and inner is not None:
                yield (*path, name)
            else:
                yield from removable(inner, (*path, name))


def without(document: Document, path: Path) -> Document:
    """A copy without the part at `path`: no such element, or the flag as it is when nobody sets it."""
    *parent, last = path
    holder = at(document, tuple(parent))
    if isinstance(holder, list):
        return replaced(document, tuple(parent), spliced(holder, slice(last, last + 1), []))
    return replaced(document, path, FLAGS.get(last))


def numbers(document: object, path: Path = ()) -> Iterator[Path]:
    """Paths of all numbers above 0 but the version."""
    if isinstance(document, bool) or path == ("version",):
        return
    if isinstance(document, int) and document > 0:
        yield path
    elif isinstance(document, list):
        for place, inner in enumerate(document):
            yield from numbers(inner, (*path, place))
    elif isinstance(document, dict):
        for name, inner in document.items():
            yield from numbers(inner, (*path, name))


def drop_blocks(search: Search, path: Path, drop: Callable[[Document, slice], Document] | None = None) -> None:
    """Blocks of a list, from all of it down to single elements, the last first."""
    drop = drop or (lambda document, block: replaced(document, path, spliced(at(document, path), block, [])))
    size = len(at(search.best, path))
    while size:
        end = len(at(search.best, path))
        while end > 0:
            search.attempt(drop(search.best, slice(max(0, end - size), end)))
            end -= size
        size //= 2


def _without_iterations(document: Document, block: slice) -> Document:
    count = block.stop - block.start
    requests = [
        request | {"arrive": max(block.start, request["arrive"] - count) if request["arrive"] > block.start else request["arrive"]}
        for request in document["requests"]
    ]
    return document | {"requests": requests, "iterations": spliced(document["iterations"], block, [])}


def _all_requests(search: Search, name: str, change: Callable) -> Document:
    return search.best | {"requests": [request | {name: change(request[name])} for request in search.requests()]}
