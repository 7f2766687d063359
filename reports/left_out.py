"""What a run left out of its profile on request, so that its PASS says less than the profile's would."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from fixtures.changed import beside_the_relay, named
from fixtures.profiles import Profile, default_level

WHOLE = (".", "suites")
PROJECTS_OWN = "suites/selftest"


def left_out(config: Any, profile: Profile, changed: list[str]) -> list[str]:
    """changed: files of the build that differ from its release. Nothing of a replay, which has no profile."""
    option, whole = config.getoption, profile.release + profile.debug
    if option("replay"):
        return []
    lines = []
    if fewer_schedules(config, profile):
        lines.append(f"--schedules {option('schedules')}, and the profile has {whole:,}; what they exercise is not judged")
    lines += [f"{name} {shlex.quote(option(name))} chose among the checks" for name in ("-k", "-m") if option(name)]
    lines += [f"{shlex.join(words)} chose among the checks" for words in _chosen(config) if words]
    level, usual = option("level"), default_level(option("profile"), option("device"))
    if level != usual and usual == "all":
        lines.append(f"--level {level}, and the profile runs both")
    unseen = beside_the_relay(changed) if level == "relay" else []
    if unseen:
        lines.append(f"changed files beside the relay hardly run without --level all: {named(unseen)}")
    return lines


def fewer_schedules(config: Any, profile: Profile) -> bool:
    wanted = config.getoption("schedules")
    return wanted is not None and wanted < profile.release + profile.debug


def _chosen(config: Any) -> list[list[str]]:
    """Paths and names that were asked for, or not to be asked for."""
    root = Path(config.rootpath)
    asked = [word for word in config.args if _from(root, word) not in WHOLE]
    options = ("deselect", "--deselect"), ("ignore", "--ignore"), ("ignore_glob", "--ignore-glob")
    left = [(name, word) for option, name in options for word in getattr(config.option, option, None) or ()]
    return [asked, [f"{name}={word}" for name, word in left if _from(root, word) != PROJECTS_OWN]]


def _from(root: Path, word: str) -> str:
    path = Path(word)
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
