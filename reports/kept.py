"""Reads what an earlier run of a report wrote, for a run that only adds to it or writes it anew."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRONG_SHAPE = (TypeError, KeyError, IndexError, AttributeError)


def read_kept(file: Path, whole: Callable[[Any], object]) -> Any:
    """The data in `file`. Raises SystemExit (2, and one line) where it cannot be read or is not `whole`."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if whole(data):
            return data
        why = "something is missing in it"
    except WRONG_SHAPE:
        why = "not what this report writes"
    except RecursionError:
        why = "nested too deeply"
    except OSError as error:
        why = error.strerror
    except ValueError as error:
        why = f"not JSON ({error})"
    print(f"{file}: {why}; measure again, or take the committed file back", file=sys.stderr)
    raise SystemExit(2)
