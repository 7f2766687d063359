"""`timeline.svg`: requests by iterations, their slots and operations, and the way of the first wrong value.

The colours follow the reader's theme; nothing in the picture rests on colour alone.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass

from fixtures.judge import RANKS
from fixtures.transcript import OF_THE_BATCH

SVG = "http://www.w3.org/2000/svg"
LAUNCHES = {"prefill", "extend", "decode"}
RESHAPING = {"filter", "merge", "retract", "idle"}
MOST_COLUMNS = 10
LEFT, TOP, WIDE, HIGH, GAP = 92, 62, 134, 62, 10
CHANNEL = 22  # between two columns, for the arrow
MIN_WIDTH = 440
STYLE = """
:root { --ink: #1f2328; --quiet: #59636e; --line: #d1d9e0; --cell: #f6f8fa; --new: #ddf4ff; --bad: #cf222e; --pale: #ffebe9; --page: #ffffff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #f0f6fc; --quiet: #9198a1; --line: #3d444d; --cell: #212830; --new: #12314f; --bad: #ff7b72; --pale: #4a1f22; --page: #0d1117 }
}
text { font: 12px system-ui, 'Segoe UI', 'Noto Sans', Helvetica, Arial, 'DejaVu Sans', sans-serif; fill: var(--ink) }
.quiet { fill: var(--quiet); font-size: 11px } .mode { font-weight: 600 } .bad { fill: var(--bad); font-weight: 600 }
.page { fill: var(--page) } .cell { fill: var(--cell); stroke: var(--line) } .prefill { fill: var(--new) }
.wrong { fill: var(--pale); stroke: var(--bad); stroke-width: 2 }
.way { fill: none; stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 4 3 } .head { fill: var(--bad) } .rule { stroke: var(--line) }
"""


@dataclass(frozen=True)
class Place:
    """A cell: an iteration and a request. `word`: what happened to the value there."""

    iteration: int
    request: int
    word: str


def timeline_svg(story: dict) -> str:
    """The picture of a story, as SVG text."""
    return _Picture(story).text()


def last_iteration(story: dict) -> int:
    """The iteration in which it goes wrong; the last one where only the whole run shows it."""
    failure = story["divergence"]
    if failure["field"] == "process" and story["last_call"]:
        return story["last_call"]["iteration"]
    return failure["iteration"] if failure["iteration"] >= 0 else max((entry[0] for entry in story["entries"]), default=0)


def way_of_the_value(story: dict) -> tuple[Place | None, Place | None]:
    """Where the first wrong value was written and where it was read; None where the run does not say."""
    failure, written = story["divergence"], story.get("written")
    left = None
    if written is not None:
        owner = _owner(story, written["slot"], written["iteration"])
        if owner is not None:
            left = Place(written["iteration"], owner, f"{written['call'].replace('_', ' ')} wrote {written['actual']}, not {written['expected']}")
    when, who = failure["iteration"], failure["request"]
    if failure["field"] == "process" and story["last_call"]:
        when = story["last_call"]["iteration"]
    if when < 0:
        return left, None
    if who < 0:
        who = next((requests[0] for iteration, _, requests, _ in story["entries"] if iteration == when and requests), -1)
    word = failure["operation"]
    if failure["field"] == "process":
        word = f"{story['last_call']['do'].replace('_', ' ')} did not come back"
    elif failure["field"] in ("exception", "assertion"):
        word += f" raised {story.get('raised', '')}"
    elif failure["verdict"] == RANKS:
        word += f" gave rank 0 {failure['expected']}, rank 1 {failure['actual']}" if failure["request"] >= 0 else ", another way on rank 1"
    elif failure["request"] >= 0 or failure["field"] in OF_THE_BATCH:
        word += f" gave {failure['actual']}"
    return left, Place(when, who, word) if who >= 0 else None


def seen_at(story: dict, read: Place) -> str:
    """Where it was read and what came of it, in words; no request where it was a whole batch's."""
    who = f", request {read.request}" if story["divergence"]["request"] >= 0 else ""
    return f"iteration {read.iteration}{who}: {read.word}"


def _owner(story: dict, slot: int, until: int) -> int | None:
    """The request that was last launched in `slot`, up to an iteration."""
    owner = None
    for iteration, _, requests, slots in story["entries"]:
        if iteration <= until and slot in slots:
            owner = requests[slots.index(slot)]
    return owner


class _Picture:
    def __init__(self, story: dict) -> None:
        self.story = story
        last = last_iteration(story)
        entries = [entry for entry in story["entries"] if entry[0] <= last]
        self.entries = {entry[0]: entry for entry in entries if entry[2]}
        whens = sorted(set(self.entries) | {op[0] for op in story["operations"] if op[0] <= last} | {last})
        self.left_out = whens[: max(0, len(whens) - MOST_COLUMNS)]
        self.columns = {when: place for place, when in enumerate(whens[-MOST_COLUMNS:])}
        seen = {request for when in self.columns if when in self.entries for request in self.entries[when][2]}
        self.rows = {request: place for place, request in enumerate(sorted(seen))}
        self.written, self.read = way_of_the_value(story)
        self.notes = self._notes()
        longest = max(len(words) for words, _ in self.notes)
        self.width = max(MIN_WIDTH, LEFT + len(self.columns) * WIDE, 24 + int(7.2 * longest))
        self.height = TOP + len(self.rows) * (HIGH + GAP) + 20 + 18 * len(self.notes)

    def text(self) -> str:
        ET.register_namespace("", SVG)
        size = {"width": str(self.width), "height": str(self.height), "viewBox": f"0 0 {self.width} {self.height}"}
        self.root = ET.Element(f"{{{SVG}}}svg", size | {"role": "img"})
        self._add("title", {}, "Timeline: " + self.story["divergence"]["line"])
        self._add("style", {}, STYLE)
        self._add("rect", {"class": "page", "width": "100%", "height": "100%", "rx": "6"})
        self._heads()
        for request, row in self.rows.items():
            self._text(12, self._y(row) + 35, f"request {request}", "mode")
        for when, entry in self.entries.items():
            if when in self.columns:
                for request, slot in zip(entry[2], entry[3], strict=True):
                    self._cell(when, request, slot, entry[1])
        self._way()
        base = TOP + len(self.rows) * (HIGH + GAP) + 18
        for place, (words, kind) in enumerate(self.notes):
            self._text(12, base + 18 * place, words, kind)
        return ET.tostring(self.root, encoding="unicode") + "\n"

    def _notes(self) -> list[tuple[str, str]]:
        failure, notes = self.story["divergence"], []
        if self.written:
            notes.append((f"written: iteration {self.written.iteration}, request {self.written.request}: {self.written.word}", "bad"))
        if self.read:
            notes.append((f"seen: {seen_at(self.story, self.read)}", "bad"))
        if not notes:
            notes.append((_cut(failure["line"], 110), "bad"))
        elif not self.written and self.story.get("tape") and failure["field"] not in ("exception", "assertion", "process"):
            notes.append((f"no row of the relay's buffers is wrong before; {_last_change(self.story)}", "quiet"))
        if self.left_out:
            notes.append((f"iterations {self.left_out[0]} to {self.left_out[-1]} are left out", "quiet"))
        return notes

    def _heads(self) -> None:
        for when, column in self.columns.items():
            self._text(self._x(column) + 2, 22, f"iteration {when}", "mode")
            names = [name for at, name, _ in self.story["operations"] if at == when and name not in LAUNCHES]
            self._text(self._x(column) + 2, 39, ", ".join(dict.fromkeys(names)), "quiet")
        self._add("line", {"class": "rule", "x1": "12", "x2": str(self.width - 12), "y1": "50", "y2": "50"})

    def _cell(self, when: int, request: int, slot: int, mode: str) -> None:
        x, y = self._x(self.columns[when]), self._y(self.rows[request])
        places = [place for place in (self.written, self.read) if place and (place.iteration, place.request) == (when, request)]
        kind = "wrong" if places else "cell prefill" if mode == "extend" else "cell"
        self._add("rect", {"class": kind, "x": str(x), "y": str(y), "width": str(WIDE - CHANNEL), "height": str(HIGH), "rx": "5"})
        self._text(x + 9, y + 20, "prefill" if mode == "extend" else mode, "mode")
        self._text(x + WIDE - CHANNEL - 9, y + 20, f"slot {slot}", "quiet", anchor="end")
        for line, place in enumerate(places):
            self._text(x + 9, y + 38 + 16 * line, "written wrong" if place is self.written else "seen wrong", "bad")

    def _way(self) -> None:
        """A dashed arrow from where the value was written to where it was read."""
        ends = [place for place in (self.written, self.read) if place and place.iteration in self.columns and place.request in self.rows]
        if len(ends) < 2 or ends[0].iteration == ends[1].iteration:
            return
        (x1, y1), (x2, y2) = ((self._x(self.columns[end.iteration]), self._y(self.rows[end.request])) for end in ends)
        x1, y1, y2 = x1 + WIDE - CHANNEL, y1 + HIGH // 2, y2 + HIGH // 2
        bend = max(6, (x2 - x1) // 2)
        self._add("path", {"class": "way", "d": f"M{x1} {y1} C{x1 + bend} {y1} {x2 - bend} {y2} {x2 - 6} {y2}"})
        self._add("path", {"class": "head", "d": f"M{x2 - 1} {y2} l-8 -4 v8 z"})

    def _x(self, column: int) -> int:
        return LEFT + column * WIDE

    def _y(self, row: int) -> int:
        return TOP + row * (HIGH + GAP)

    def _text(self, x: int, y: int, words: str, kind: str, anchor: str = "start") -> None:
        if words:
            self._add("text", {"class": kind, "x": str(x), "y": str(y), "text-anchor": anchor}, words)

    def _add(self, tag: str, attributes: dict[str, str], words: str = "") -> None:
        element = ET.SubElement(self.root, f"{{{SVG}}}{tag}", attributes)
        element.text = words or None


def _last_change(story: dict) -> str:
    """The last operation that changed the shape of a batch, up to the divergence."""
    changes = [op for op in story["operations"] if op[0] <= last_iteration(story) and op[1] in RESHAPING]
    return f"its batch was last changed by {changes[-1][1]}, iteration {changes[-1][0]}" if changes else "its batch kept its shape"


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "\u2026"
