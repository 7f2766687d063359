"""`streams.svg`: streams by time, what ran on them, the edges that ordered it, and the one that is missing.

Time goes from left to right in the order in which things ran. A full arrow is an edge: a wait of one stream for another.
The dashed red arrow joins the two accesses that nothing orders.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET

from reports.timeline import STYLE, SVG

LEFT, TOP, WIDE, HIGH, GAP, ROW = 136, 34, 118, 44, 16, 74
MOST_PIECES = 40
MORE_STYLE = """
.edge { fill: none; stroke: var(--quiet); stroke-width: 1.2 } .tip { fill: var(--quiet) }
.lane { stroke: var(--line); stroke-dasharray: 2 4 }
"""


def stream_timeline_svg(streams: dict) -> str:
    """The picture of what `fixtures.stream_story` tells, as SVG text."""
    return _Picture(streams).text()


def missing_edge(race: dict) -> list[str]:
    """The race in words, a line for each side."""
    words = []
    for name in ("first", "second"):
        side = race[name]
        does = "writes" if side["writes"] else "reads"
        words.append(f"{side['stream']} {does} {race['memory']} at {side['site']}, {side['operation']} of iteration {side['iteration']}")
    return words


class _Picture:
    def __init__(self, streams: dict) -> None:
        self.told = streams
        first, second = (side if side is not None else 0 for side in streams["sides"])
        last = max(first, second)
        # What ran long before the two says little; the two themselves are always in the picture.
        start = max(0, min(min(first, second), last - MOST_PIECES + 1))
        self.shown = range(start, min(len(streams["pieces"]), last + 3))
        self.columns = {piece: column for column, piece in enumerate(self.shown)}
        self.rows = sorted({streams["pieces"][piece]["stream"] for piece in self.shown})
        self.notes = ["no edge between:", *missing_edge(streams["race"])]
        longest = max(map(len, self.notes))
        self.width = max(LEFT + len(self.shown) * (WIDE + GAP) + 20, 24 + int(6.6 * longest))
        self.height = TOP + len(self.rows) * ROW + 26 + 18 * len(self.notes)

    def text(self) -> str:
        ET.register_namespace("", SVG)
        size = {"width": str(self.width), "height": str(self.height), "viewBox": f"0 0 {self.width} {self.height}"}
        self.root = ET.Element(f"{{{SVG}}}svg", size | {"role": "img"})
        self._add("title", {}, "Streams: " + "; ".join(self.notes[1:]))
        self._add("style", {}, STYLE + MORE_STYLE)
        self._add("rect", {"class": "page", "width": "100%", "height": "100%", "rx": "6"})
        for row, stream in enumerate(self.rows):
            y = TOP + row * ROW + HIGH // 2
            self._text(12, y + 4, self.told["streams"][stream].removeprefix("the "), "mode")
            self._add("line", {"class": "lane", "x1": str(LEFT - 8), "x2": str(self.width - 12), "y1": str(y), "y2": str(y)})
        when = None
        for piece in self.shown:
            told = self.told["pieces"][piece]
            if told["iteration"] != when:
                when = told["iteration"]
                self._text(self._x(piece), 20, f"iteration {when}" if when >= 0 else "start", "quiet")
            self._piece(piece, told)
        for before, after in self.told["edges"]:
            if before in self.columns and after in self.columns:
                self._arrow(before, after, "edge", "tip")
        first, second = self.told["sides"]
        if first in self.columns and second in self.columns:
            self._arrow(*sorted((first, second)), "way", "head")
        base = TOP + len(self.rows) * ROW + 18
        for place, words in enumerate(self.notes):
            self._text(12, base + 18 * place, words, "bad")
        return ET.tostring(self.root, encoding="unicode") + "\n"

    def _piece(self, piece: int, told: dict) -> None:
        x, y = self._x(piece), self._y(piece)
        race = self.told["race"]
        sides = [race[name] for name, side in zip(("first", "second"), self.told["sides"], strict=True) if side == piece]
        kind = "wrong" if sides else "cell"
        self._add("rect", {"class": kind, "x": str(x), "y": str(y), "width": str(WIDE), "height": str(HIGH), "rx": "5"})
        self._text(x + 7, y + 18, told["operation"], "mode")
        what = " and ".join("writes" if side["writes"] else "reads" for side in sides)
        self._text(x + 7, y + 35, what or _cut(", ".join(told["does"]), 17), "bad" if sides else "quiet")

    def _arrow(self, before: int, after: int, line: str, tip: str) -> None:
        x1, y1, x2, y2 = self._x(before) + WIDE, self._y(before), self._x(after), self._y(after)
        down = y2 >= y1
        y1, y2 = y1 + (HIGH if down else 0) - (6 if down else -6), y2 + (6 if down else HIGH - 6)
        bend = max(10, (x2 - x1) // 2)
        self._add("path", {"class": line, "d": f"M{x1} {y1} C{x1 + bend} {y1} {x2 - bend} {y2} {x2 - 6} {y2}"})
        self._add("path", {"class": tip, "d": f"M{x2 - 1} {y2} l-8 -4 v8 z"})

    def _x(self, piece: int) -> int:
        return LEFT + self.columns[piece] * (WIDE + GAP)

    def _y(self, piece: int) -> int:
        return TOP + self.rows.index(self.told["pieces"][piece]["stream"]) * ROW

    def _text(self, x: int, y: int, words: str, kind: str) -> None:
        if words:
            self._add("text", {"class": kind, "x": str(x), "y": str(y)}, words)

    def _add(self, tag: str, attributes: dict[str, str], words: str = "") -> None:
        element = ET.SubElement(self.root, f"{{{SVG}}}{tag}", attributes)
        element.text = words or None


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else words[: most - 1] + "\u2026"
