"""A reproducer: a folder that a maintainer who has never seen this suite can read and run.

`schedule.json` replays in this suite, `reproduce.py` runs without it, `README.md` goes into an issue,
`timeline.svg` shows the way of the wrong value. The script is run before it is handed out: on the SUT it must
exit 1, on an intact release of the same version 0; where that could not be done the README says so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from fixtures.artifacts import suite_version, write_atomically
from fixtures.contained import SILENT
from fixtures.runner_process import RunnerFailed, RunnerProcess
from fixtures.schedule import ScheduleError, load
from fixtures.sut import ROOT, Sut, SutError, locate
from reports.flat_script import NotFlat, flat_script
from reports.minimize import SECONDS, Minimized, minimize
from reports.page import write_page
from reports.reduction import kind_of
from reports.replay_script import replay_script
from reports.summary import SummaryError
from reports.timeline import last_iteration, timeline_svg, way_of_the_value

SCRIPT_LIMIT = 300.0
FAULT, RIGHT = 1, 0


@dataclass
class Reproducer:
    """folder: where it is. iterations: up to the divergence. on_sut, on_intact: exit codes of its script, None where it was not run."""

    folder: Path
    failure: dict
    iterations: int
    flat: bool
    lines: int
    on_sut: int | None
    on_intact: int | None

    def verified(self) -> bool:
        return self.on_sut == FAULT and self.on_intact in (RIGHT, None)

    def checked(self, intact: str = "the intact release") -> str:
        """What is known of the script, in words."""
        if self.on_sut is None:
            return "not run"
        beside = f"{self.on_intact} on {intact}" if self.on_intact is not None else "not run on an intact release (none at hand)"
        return f"exited {self.on_sut} on this build, {beside}"


def first_wrong_call(story: dict) -> str:
    """The relay call after which the SUT's state or answer is wrong for the first time."""
    if story["written"]:
        return story["written"]["call"]
    until = story["calls"] if story["read"] is None else story["read"]
    calls = [call["do"] for call in story["tape"][:until] if call["do"] not in ("batch", "read", "relay_state", "host_lengths", "carry")]
    return calls[-1] if calls else "start"


def key_of(story: dict) -> tuple[str, ...]:
    """Two failures with the same key are one: verdict, field, operation and the first call that went wrong."""
    return (*kind_of(story["divergence"]), first_wrong_call(story))


def name_of(key: tuple[str, ...]) -> str:
    """A folder name: `bonus_tokens-after-resolve_inputs-from-stash`."""
    _, field, operation, call = key
    return re.sub(r"[^\w.-]+", "_", f"{field}-after-{operation}-from-{call}")


def write_reproducer(
    folder: Path, minimized: Minimized, runner: RunnerProcess, intact: Sut | None = None, verify: bool = True
) -> Reproducer:
    """Write the folder of one minimized failure, below `folder`. Raises RunnerFailed.

    intact: a right build of the same release, to check the script on.
    """
    mode = "debug assertions" if runner.debug else "release mode"
    story = runner.job("story", document=minimized.text)
    if story["divergence"] is None:
        story["divergence"] = minimized.failure  # it only shows beside other runs; the picture still helps
    here = folder / name_of(key_of(story))
    here.mkdir(parents=True, exist_ok=True)
    write_atomically(here / "schedule.json", minimized.text + "\n")
    write_atomically(here / "timeline.svg", timeline_svg(story))
    run = _Runs(here / "reproduce.py", runner.sut, intact) if verify else None
    text, flat, on_sut, on_intact = _script(story, minimized, runner, mode, run)
    write_atomically(here / "reproduce.py", text)
    made = Reproducer(here, story["divergence"], last_iteration(story) + 1, flat is None, text.count("\n"), on_sut, on_intact)
    write_atomically(here / "README.md", readme(story, minimized, runner, made, mode, flat or "", intact))
    facts = {"suite_version": suite_version(), "mode": mode, "sut": runner.sut.to_dict(), "divergence": story["divergence"]}
    facts |= {"key": key_of(story), "one_minimal": minimized.complete, "exit_on_sut": on_sut, "exit_on_intact": on_intact}
    facts["checked"] = made.checked()
    write_atomically(here / "divergence.json", json.dumps(facts, indent=2))
    return made


def intact_release(sut: Sut) -> Sut | None:
    """The release that a broken or changed build says it is, where this machine has it."""
    try:
        found = locate(sut.release) if sut.release else None
    except SutError:
        return None
    return found if found is not None and found.digest != sut.digest else None


class _Runs:
    """Runs a script as its reader will: a fresh interpreter with one SGLang in front."""

    def __init__(self, file: Path, sut: Sut, intact: Sut | None) -> None:
        self.file, self.sut, self.intact = file, sut, intact

    def __call__(self, text: str) -> tuple[int | None, int | None]:
        write_atomically(self.file, text)
        on_sut = exit_of(self.file, self.sut)
        return on_sut, exit_of(self.file, self.intact) if self.intact is not None and on_sut == FAULT else None


def exit_of(script: Path, sut: Sut) -> int | None:
    """The exit code of a script with this SGLang; None when it did not end in time."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_", "SGLANG_"))}
    environment |= {"PYTHONPATH": os.pathsep.join(sut.path()), "RELAY_SUITE": str(ROOT)}
    command = [sys.executable, "-W", "ignore", str(script)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=SCRIPT_LIMIT, check=False, cwd=script.parent)
    except subprocess.TimeoutExpired:
        return None
    return done.returncode


def _script(
    story: dict, minimized: Minimized, runner: RunnerProcess, mode: str, run: Callable | None
) -> tuple[str, str | None, int | None, int | None]:
    """The shortest script that shows the fault: its text, None or why it is no flat one, and its exit codes."""
    title = _title(story, runner.sut)
    calls = None
    if story["read"] is not None:
        everything = [call for call in story["tape"][: story["read"]] if call["do"] != "read"] + [story["tape"][story["read"]]]
        calls = everything if runner.debug else runner.job("calls_that_matter", story=story)
    why = "a script of the relay calls was made and does not show it"
    for by_worker in (False, True):
        try:
            text = flat_script(story, calls, title, mode, runner.device, by_worker)
        except NotFlat as reason:
            why = str(reason)
            break
        if run is None:
            return text, None, None, None
        on_sut, on_intact = run(text)
        if on_sut == FAULT and on_intact in (RIGHT, None):
            return text, None, on_sut, on_intact
    text = replay_script(title, why, story["divergence"], runner.device)
    on_sut, on_intact = (None, None) if run is None else run(text)
    return text, why, on_sut, on_intact


def _title(story: dict, sut: Sut) -> str:
    failure = story["divergence"]
    if failure["field"] in ("exception", "assertion"):
        seen = f"{failure['operation']} raises {story['raised'] or 'an exception'}"
    elif failure["field"] == "process":
        seen = lost_call(story)
    else:
        seen = f"{failure['field']} after {failure['operation']}: expected {failure['expected']}, got {failure['actual']}"
    return f"{sut.title()}, speculative-decoding relay (DFlash): {seen}"


# -- README -----------------------------------------------------------------------------------------------


def readme(
    story: dict, minimized: Minimized, runner: RunnerProcess, made: Reproducer, mode: str, not_flat: str, intact: Sut | None
) -> str:
    """What goes into an issue."""
    sut = runner.sut
    requests, iterations = minimized.size()[0], last_iteration(story) + 1
    if not_flat:
        script = f"`reproduce.py` replays the schedule through the suite, because no flat script is honest here: {not_flat}."
    else:
        script = f"`reproduce.py` ({made.lines} lines) needs torch and SGLang only: `PYTHONPATH=<folder with sglang> python reproduce.py`."
    lines = [
        f"# {_title(story, sut)}",
        "",
        f"**What differs.** {_sentence(story)}",
        "",
        "**What happens** " + f"({_count(requests, 'request')}, {_count(iterations, 'iteration')}; the smallest schedule found"
        + (", nothing in it can be left out)" if minimized.complete else f"; {minimized.stopped}, it may not be the smallest)"),
        "",
        *story_in_words(story),
        "",
        "![timeline](timeline.svg)",
        "",
        "**How to run.** " + script + " It exits 1 on a build with the fault, 0 on a right one, 2 when it could not run.",
        "In the suite: `tox -e replay -- schedule.json --sut <release or folder>`.",
        "",
        f"**Checked.** `reproduce.py` {made.checked(f'the intact {intact.title()}' if intact else '')}.",
        "",
        "| | |",
        "| --- | --- |",
        f"| SGLang | {sut.title()}, contract `{sut.contract}`, relay files `{sut.digest}` |",
        f"| mode, device | {mode}, {runner.identity.get('device', runner.device)} |",
        f"| torch | {runner.identity.get('torch', 'unknown')} |",
        f"| suite | {suite_version()} |",
        "",
    ]
    return "\n".join(lines)


def lost_call(story: dict) -> str:
    """What a call did that killed or hung the process."""
    did = "hangs" if SILENT in story["divergence"]["actual"] else "kills its process"
    last = story["last_call"]
    return f"{last['do'].replace('_', ' ')} in iteration {last['iteration']} {did}" if last else f"the run {did}"


def _sentence(story: dict) -> str:
    failure = story["divergence"]
    if failure["field"] == "process":
        return f"{lost_call(story).capitalize()}; it should come back."
    where = f"In iteration {failure['iteration']}, " if failure["iteration"] >= 0 else ""
    who = f"for request {failure['request']} (slot {failure['slot']}), " if failure["request"] >= 0 and failure["slot"] >= 0 else ""
    if failure["field"] in ("exception", "assertion"):
        return f"{where}{failure['operation']} raises: `{_public(failure['actual'])}`."
    return (
        f"{where}{who}`{failure['field']}` after {failure['operation']} is `{_public(failure['actual'])}`; "
        f"it should be `{failure['expected']}`."
    )


def _public(words: str) -> str:
    """Paths of this machine, down to the package."""
    return re.sub(r"/\S*?/(?=sglang/)", "", words)


def story_in_words(story: dict) -> list[str]:
    """One line for each iteration up to the divergence."""
    lines: list[str] = []
    entries = {entry[0]: entry for entry in story["entries"] if entry[2]}
    for when in sorted(set(entries) | {op[0] for op in story["operations"]}):
        if when > last_iteration(story):
            break
        words = [_operation_words(name, slots) for at, name, slots in story["operations"] if at == when and name not in ("prefill", "extend", "decode")]
        if when in entries:
            _, mode, requests, slots = entries[when]
            pairs = ", ".join(f"request {r} in slot {s}" for r, s in zip(requests, slots, strict=True))
            words.append(f"{'prefill' if mode == 'extend' else mode} of {pairs}")
        lines.append(f"{len(lines) + 1}. Iteration {when}: {'; '.join(words)}.")
    written, read = way_of_the_value(story)
    if written:
        lines.append(f"{len(lines) + 1}. The first wrong value is written in iteration {written.iteration}: {written.word} (slot {story['written']['slot']}).")
    if read:
        lines.append(f"{len(lines) + 1}. It is seen in iteration {read.iteration}, request {read.request}: {read.word}.")
    return lines


def _operation_words(name: str, slots: list[int]) -> str:
    left = f" leaves slots {', '.join(map(str, slots))}" if slots else ""
    return {"merge": "two batches merge", "filter": "a filter", "retract": "a retraction", "idle": "an idle batch runs"}.get(name, name) + left


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


# -- a whole run ------------------------------------------------------------------------------------------


def reproduce_run(artifacts: Path, sut: Sut | None, device: str, seconds: float) -> list[Reproducer]:
    """A reproducer for every distinct divergence among the failures that a run left in `artifacts`."""
    runners: dict[tuple[str, bool], RunnerProcess] = {}
    made: dict[tuple, Reproducer] = {}
    try:
        for file, kept in tqdm(_failures(artifacts), unit="failure", disable=None):
            its = sut or locate(kept["sut"]["root"])
            debug = kept["mode"] == "debug assertions"
            runner = runners.setdefault((its.root, debug), RunnerProcess(its, device, artifacts, "reproducer", debug))
            text = load(file).to_json()
            story = runner.job("story", document=text)
            if story["divergence"] is None or key_of(story) in made:
                continue
            made[key_of(story)] = None
            minimized = minimize(text, runner, seconds)
            one = write_reproducer(artifacts / "reproducers", minimized, runner, intact_release(its))
            made[key_of(story)] = one
            print(f"{one.failure['line']}\n  {one.folder}: reproduce.py {one.checked()}")
    finally:
        for runner in runners.values():
            runner.close()
    return [one for one in made.values() if one is not None]


def _failures(artifacts: Path) -> list[tuple[Path, dict]]:
    """Schedules that a run saved, the short ones first, with what it wrote about them."""
    found = []
    for file in (artifacts / "failures").glob("*/schedule.json"):
        try:
            found.append((file.stat().st_size, file, json.loads(file.with_name("divergence.json").read_text(encoding="utf-8"))))
        except (OSError, ValueError) as error:
            print(f"{file.parent}: passed over ({error})", file=sys.stderr)
    return [(file, kept) for _, file, kept in sorted(found, key=lambda one: one[:2])]


def main(words: list[str] | None = None) -> int:
    """Exit 0 when every distinct failure has its reproducer, 2 when something cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m reports.reproducer", description="A reproducer for every distinct divergence of a run, and its page."
    )
    parser.add_argument("artifacts", nargs="?", type=Path, default=Path("artifacts"), help="what the run left (artifacts)")
    parser.add_argument("--sut", metavar="RELEASE|PATH", help="SGLang to use instead of the one that failed")
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda or cuda:N")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="N", help="time to minimize each (120)")
    asked = parser.parse_args(words)
    try:
        sut = locate(asked.sut) if asked.sut else None
        made = reproduce_run(asked.artifacts, sut, asked.device, asked.seconds)
        print(f"{len(made)} distinct divergences; {write_page(asked.artifacts)}")
    except (RunnerFailed, ScheduleError, SummaryError, SutError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
