"""`report.html`: one self-contained page for a run, written from its `summary.json` and its reproducers.

    python -m reports.page [ARTIFACTS]
"""

from __future__ import annotations

import argparse
import base64
import json
import shlex
import sys
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fixtures.artifacts import AT_SCHEDULER, write_atomically
from fixtures.changed import named
from fixtures.events import EVENTS, IMPOSSIBLE_PAIRS, WINDOW
from fixtures.kinds import by_kind, kind_of
from fixtures.profiles import profile_of
from fixtures.sut import Sut
from reports.detection import read_detection
from reports.kept import WRONG_SHAPE
from reports.summary import MEANINGS, Failure, Summary, SummaryError, read_summary

MOST_GROUPS = 40
TONES = {"PASS": "good", "SKIPPED": "fair", "known": "good", "INCOMPLETE": "fair", "INTERRUPTED": "fair"}


def page_of(summary: Summary, reproducers: list[dict]) -> str:
    """The page, as HTML. reproducers: what `read_reproducers` gives."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    ours = [one for one in reproducers if one["digest"] == summary.sut.digest]
    most = max(summary.events.values(), default=0) or 1
    events = [
        {"name": name, "text": text, "count": summary.events.get(name, 0), "percent": 100 * summary.events.get(name, 0) // most}
        for name, text in EVENTS.items()
    ]
    sut = Sut(**summary.sut.model_dump())
    return environment.get_template("page.html.jinja").render(
        s=summary,
        sut=sut.title(),
        nearest=sut.nearest_release(),
        changed=named(summary.changed),
        meaning=MEANINGS[summary.verdict],
        tone=TONES.get(summary.verdict, "bad"),
        broken=len(summary.checks.failed) + len(summary.checks.errors),
        events=events,
        pairs=[
            {"name": a, "counts": [None if (a, b) in IMPOSSIBLE_PAIRS else summary.pairs.get(f"{a}>{b}", 0) for b in EVENTS]}
            for a in EVENTS
        ],
        minimum=profile_of(summary.profile, summary.device).pairs,
        window=WINDOW,
        detection=read_detection(),
        same_sut=_same_sut(summary),
        at_scheduler=AT_SCHEDULER,
        whole=profile_of(summary.profile, summary.device).complete and not summary.partial,
        groups=_groups(summary.failures, ours),
        others=[one for one in ours if one["kind"] not in {kind_of(failure.model_dump()) for failure in summary.failures}],
    )


def _same_sut(summary: Summary) -> str:
    """Options with which a replay runs on the same SUT."""
    return f"--sut {shlex.quote(summary.sut.root)}" + (f" --device {summary.device}" if summary.device != "cpu" else "")


def _groups(failures: list[Failure], reproducers: list[dict]) -> list[dict]:
    """Failures by kind, as the verdict sorts them; each with the reproducers of that kind."""
    return [
        {"first": alike[0], "count": len(alike), "reproducers": [one for one in reproducers if one["kind"] == kind_of(alike[0])]}
        for alike in by_kind([failure.model_dump() for failure in failures])[:MOST_GROUPS]
    ]


def read_reproducers(artifacts: Path) -> list[dict]:
    """kind, line, folder, checked, picture (a data URL; "" where there is none) and the SUT's digest of each reproducer there is."""
    found = []
    for file in sorted((artifacts / "reproducers").glob("*/divergence.json")):
        try:
            facts = json.loads(file.read_text(encoding="utf-8"))
            drawing = file.with_name("timeline.svg")
            picture = base64.b64encode(drawing.read_bytes()).decode() if drawing.is_file() else ""
            failure = facts["divergence"]
            found.append(
                {
                    "kind": kind_of(failure),
                    "digest": facts["sut"]["digest"],
                    "line": failure["line"],
                    "folder": str(file.parent),
                    "checked": facts["checked"],
                    "picture": picture and f"data:image/svg+xml;base64,{picture}",
                }
            )
        except (OSError, ValueError, RecursionError, *WRONG_SHAPE) as error:
            print(f"{file.parent}: left out of the page ({error})", file=sys.stderr)
    return found


def write_page(artifacts: Path) -> Path:
    """Write `report.html` beside `summary.json`. Raises SummaryError."""
    summary = read_summary(artifacts / "summary.json")
    return write_atomically(artifacts / "report.html", page_of(summary, read_reproducers(artifacts)))


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m reports.page", description=__doc__.splitlines()[0])
    parser.add_argument("artifacts", nargs="?", type=Path, default=Path("artifacts"), help="folder with summary.json (artifacts)")
    try:
        print(write_page(parser.parse_args(words).artifacts))
    except SummaryError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
