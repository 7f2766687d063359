"""A script is run before it is handed out: as its reader will, in a fresh interpreter with one SGLang in front."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from fixtures.artifacts import write_atomically
from fixtures.sut import ROOT, Sut, SutError, locate, stated_version

SCRIPT_LIMIT = 300.0
FAULT, RIGHT, NOT_POSSIBLE = 1, 0, 2


@dataclass(frozen=True)
class Outcome:
    """Exit codes of a script, None where it was not run or did not end in time."""

    on_sut: int | None
    on_intact: int | None

    def shows_it(self) -> bool:
        return self.on_sut == FAULT and self.on_intact in (RIGHT, None)

    def words(self, intact: str = "the intact release") -> str:
        if self.on_sut is None:
            return "not run"
        if self.on_sut != FAULT:
            return f"exited {self.on_sut} on this build: " + ("it could not run" if self.on_sut == NOT_POSSIBLE else "it does not show the fault")
        beside = f"{self.on_intact} on {intact}" if self.on_intact is not None else "not run on an intact release (none at hand)"
        return f"exited {self.on_sut} on this build, {beside}"


NOT_RUN = Outcome(None, None)


@dataclass(frozen=True)
class Checker:
    """Writes a script to `file` and runs it on the SUT and, at the same time, on `intact`, which counts where it fails on the SUT."""

    file: Path
    sut: Sut
    intact: Sut | None

    def __call__(self, text: str) -> Outcome:
        write_atomically(self.file, text)
        with ThreadPoolExecutor() as pool:
            on_sut, on_intact = pool.map(lambda sut: sut and exit_of(self.file, sut), (self.sut, self.intact))
        on_intact = on_intact if on_sut == FAULT else None
        # A checkout may speak to a relay that the release it is held against does not have: that says nothing.
        return Outcome(on_sut, None if on_intact == NOT_POSSIBLE and not self.sut.release else on_intact)


def intact_release(sut: Sut, level: str = "relay") -> Sut | None:
    """The release to hold a broken or changed build against, where this machine has it.

    A build with the release's own relay files is the release, but at scheduler level, where any file may be the one that was changed.
    """
    try:
        found = locate(sut.nearest_release())
    except SutError:
        return None
    same = found.source == sut.source if level == "scheduler" else found.digest == sut.digest
    return None if same else found


def name_of_intact(intact: Sut | None, sut: Sut) -> str:
    """Which release a script was checked on, and why that one, in words."""
    if intact is None:
        return ""
    why = "" if sut.release else f", the release that {'this checkout states' if stated_version(Path(sut.root)) == intact.release else 'is the default here'}"
    return f"the intact {intact.title()}{why}"


def how_to_run(sut: Sut, *words: str) -> str:
    """A command for whoever has this SGLang. A release that needs an older transformers than the installed one finds it in front."""
    folders = ([f"<folder with transformers=={transformers_of(sut)}>"] if sut.layer else []) + ["<folder with sglang>"]
    return f"`PYTHONPATH={os.pathsep.join(folders)} {' '.join(('python reproduce.py', *words))}`"


def transformers_of(sut: Sut) -> str:
    """The version that this SGLang needs instead of the installed one; "" where there is none."""
    return Path(sut.layer).name.removeprefix("transformers-")


def exit_of(script: Path, sut: Sut) -> int | None:
    """The exit code of a script with this SGLang; None when it did not end in time."""
    script = script.resolve()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_", "SGLANG_"))}
    path = [*sut.path(), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment |= {"PYTHONPATH": os.pathsep.join(path), "RELAY_SUITE": str(ROOT)}
    command = [sys.executable, "-W", "ignore", str(script)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=SCRIPT_LIMIT, check=False, cwd=script.parent)
    except subprocess.TimeoutExpired:
        return None
    return done.returncode
