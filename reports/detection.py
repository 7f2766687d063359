"""What this suite catches, as it was last measured: `measured/faults.json` as rows for the page."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import NamedTuple

from reports.kept import WRONG_SHAPE

FOLDER = Path(__file__).parent / "measured"


class Detection(NamedTuple):
    """origin: when and on what. columns: suites. rows: of each fault its name and, by column, how it was caught, "" or None
    where it cannot be reached. picture: a data URL."""

    origin: str
    faults: int
    caught: int
    columns: list[str]
    rows: list[tuple[str, list[str | None]]]
    picture: str


def read_detection(folder: Path = FOLDER) -> Detection | None:
    """None where nothing was measured, or what was cannot be read: a run's page does not hang on it."""
    try:
        data = json.loads((folder / "faults.json").read_text(encoding="utf-8"))
        drawing = base64.b64encode((folder / "faults.svg").read_bytes()).decode()
        said, found = data["summary"], data["found"]
        columns = list(dict.fromkeys(column for cells in found.values() for column in cells))
        rows = [(name, [_word(cells.get(column)) for column in columns]) for name, cells in found.items()]
    except (OSError, ValueError, RecursionError, *WRONG_SHAPE):
        return None
    picture = f"data:image/svg+xml;base64,{drawing}"
    return Detection(data["origin"].replace("`", ""), said["faults"], said["caught"], columns, rows, picture)


def _word(cell: dict | None) -> str | None:
    if cell is None:
        return None
    return (str(cell["schedules"]) if "schedules" in cell else "yes") if cell["caught"] else ""
