"""One environment serves all commands: without this, tox makes it anew whenever another command uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tox.tox_env.info import Info

_compare = Info.compare


@contextmanager
def _compare_without_name(self: Info, value: Any, section: str, sub_section: str | None = None) -> Iterator[tuple]:
    if isinstance(value, dict) and "name" in value:
        value = value | {"name": "relay"}
    with _compare(self, value, section, sub_section) as found:
        yield found


Info.compare = _compare_without_name
