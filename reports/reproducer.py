"""A reproducer of a failing schedule: a folder that a maintainer who has never seen this suite can read and run.

`schedule.json` replays in this suite, `reproduce.py` runs without it, `README.md` goes into an issue,
`timeline.svg` shows the way of the wrong value. The script is run before it is handed out: on the SUT it must
exit 1, on an intact release of the same version 0; where that could not be done the README says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fixtures.artifacts import AT_SCHEDULER, WATCHING, suite_version, write_atomically
from fixtures.contained import SILENT
from fixtures.judge import RANKS
from fixtures.kinds import kind_of
from fixtures.ranks import as_run_by
from fixtures.runner_process import RunnerFailed, RunnerProcess
from fixtures.schedule import parse
from fixtures.sut import Sut
from fixtures.virtual_lane import stream_name
from reports.checked_script import NOT_POSSIBLE, NOT_RUN, Checker, Outcome, how_to_run, name_of_intact, transformers_of
from reports.flat_script import NotFlat, flat_script
from reports.minimize import Minimized, counted
from reports.reduction import spelled_out
from reports.replay_script import replay_script
from reports.stream_timeline import missing_edge, stream_timeline_svg
from reports.timeline import last_iteration, seen_at, timeline_svg, way_of_the_value

TWO_RANKS = "it takes two ranks, processes that differ in hash seed, in what unwritten memory reads as and in which streams are late"
NO_SUSPECTS = ("batch", "read", "relay_state", "host_lengths", "carry", "draft_block")
# Calls of the worker's step around the model, and the fields that they give: the relay's calls have their results as literals.
MODELS_PART = {"draft_block": ("block_ids", "positions", "cache_locs"), "accept": ("accept_lens", "out_tokens")}


@dataclass
class Reproducer:
    """folder: where it is. iterations: up to the divergence. outcome: of its script. key: as `key_of` has it."""

    folder: Path
    failure: dict
    iterations: int
    flat: bool
    lines: int
    outcome: Outcome
    key: tuple[str, ...]


def first_wrong_call(story: dict) -> str:
    """The relay call after which the SUT's state or answer is wrong for the first time; `ranks` where none is, but two differ."""
    if story["divergence"]["verdict"] == RANKS:
        return "ranks"
    if story["written"]:
        return story["written"]["call"]
    if story.get("streams"):
        return story["streams"]["race"]["first"]["operation"]
    if story.get("raced"):
        return "race"
    until = story["calls"] if story["read"] is None else story["read"]
    calls = [call["do"] for call in story["tape"][:until] if call["do"] not in NO_SUSPECTS]
    return calls[-1] if calls else story["dialect"].get("level", "start")


def key_of(story: dict) -> tuple[str, ...]:
    """Two failures with the same key are one: verdict, field, operation and the first call that went wrong."""
    return (*kind_of(story["divergence"]), first_wrong_call(story))


def folder_name(key: tuple[str, ...]) -> str:
    """A folder name: `bonus_tokens-after-resolve_inputs-from-stash`."""
    _, field, operation, call = key
    return re.sub(r"[^\w.-]+", "_", f"{field}-after-{operation}-from-{call}")


def story_of(text: str, failure: dict, runner: RunnerProcess) -> dict:
    """What happens in a schedule that fails with `failure`, call by call; `divergence` may be None. Raises RunnerFailed.

    What takes a GPU's context with it, or does not show on it this time, is told without the SUT.
    """
    try:
        story = runner.job("story", document=text)
    except RunnerFailed:
        if not runner.on_gpu:
            raise
        return runner.job("story", document=text, failure=failure)
    if story["divergence"] is None and runner.on_gpu:
        return story | {"divergence": failure, "raced": True}
    return story


def story_of_smallest(minimized: Minimized, runner: RunnerProcess) -> dict:
    """The same of a minimized schedule, whose failure it has where it shows beside other runs only; of two ranks, what rank 0 does.

    Raises RunnerFailed.
    """
    if minimized.failure["verdict"] == RANKS:
        as_on_zero = as_run_by(0, parse(minimized.text), runner.device).to_json()
        return runner.job("story", document=as_on_zero) | {"divergence": minimized.failure, "raised": "", "streams": None}
    story = story_of(minimized.text, minimized.failure, runner)
    return story if story["divergence"] is not None else story | {"divergence": minimized.failure}


def write_reproducer(
    folder: Path, minimized: Minimized, story: dict, runner: RunnerProcess, intact: Sut | None = None, verify: bool = True
) -> Reproducer:
    """Write the folder of one minimized failure, below `folder`. Raises RunnerFailed.

    story: what `story_of_smallest` gives. intact: a right build of the same release, to check the script on.
    """
    mode = runner.mode()
    here = folder / folder_name(key_of(story))
    write_atomically(here / "schedule.json", minimized.text + "\n")
    write_atomically(here / "timeline.svg", timeline_svg(story))
    if story.get("streams"):
        write_atomically(here / "streams.svg", stream_timeline_svg(story["streams"]))
    run = Checker(here / "reproduce.py", runner.sut, intact) if verify else None
    text, not_flat, outcome = _script(story, runner, mode, run)
    write_atomically(here / "reproduce.py", text)
    made = Reproducer(here, story["divergence"], last_iteration(story) + 1, not_flat is None, text.count("\n"), outcome, key_of(story))
    write_atomically(here / "README.md", readme(story, minimized, runner, made, mode, not_flat or "", intact))
    write_facts(here, runner.sut, mode, story["divergence"], key_of(story), minimized.complete, outcome)
    return made


def write_facts(
    folder: Path, sut: Sut, mode: str, failure: dict, key: tuple[str, ...], one_minimal: bool, outcome: Outcome
) -> None:
    """`divergence.json` of a reproducer: the same as its README, as data."""
    facts = {"suite_version": suite_version(), "mode": mode, "sut": sut.to_dict(), "divergence": failure, "key": key}
    facts |= {"one_minimal": one_minimal, "exit_on_sut": outcome.on_sut, "exit_on_intact": outcome.on_intact}
    write_atomically(folder / "divergence.json", json.dumps(facts | {"checked": outcome.words()}, indent=2))


def _script(
    story: dict, runner: RunnerProcess, mode: str, run: Callable[[str], Outcome] | None
) -> tuple[str, str | None, Outcome]:
    """The shortest script that shows the fault: its text, None or why it is no flat one, and what running it gave."""
    title = _title(story, runner.sut)
    calls = None
    if story["read"] is not None:
        calls = runner.job("calls_that_matter", story=story)
        if calls is None and runner.debug:  # a call less may fire an assertion: then all are made
            calls = _all_calls(story)
    of_ranks = story["divergence"]["verdict"] == RANKS
    why = TWO_RANKS if of_ranks else "a script of the relay calls was made and does not show it"
    for by_worker in () if of_ranks else (False, True):
        try:
            text = flat_script(story, calls, title, mode, runner.device, by_worker)
        except NotFlat as reason:
            why = str(reason)
            break
        outcome = NOT_RUN if run is None else run(text)
        if run is None or outcome.shows_it():
            return text, None, outcome
        if outcome.on_sut == NOT_POSSIBLE:
            why = "a script of the relay calls was made and could not run"
    text = replay_script(title, why, story["divergence"], runner.device, runner.level)
    return text, why, NOT_RUN if run is None else run(text)


def _all_calls(story: dict) -> list[dict]:
    """Of the relay, up to the read that diverges."""
    last = story["tape"][story["read"]]
    left_out = {"read"} | {do for do, fields in MODELS_PART.items() if last["field"] not in fields}
    return [call for call in story["tape"][: story["read"]] if call["do"] not in left_out] + [last]


def _title(story: dict, sut: Sut) -> str:
    failure = story["divergence"]
    if story["raised"] == "OldNameTouched":
        seen = f"{failure['operation']} touches {_touched(failure)}"
    elif failure["field"] in ("exception", "assertion"):
        seen = f"{failure['operation']} raises {story['raised'] or 'an exception'}"
    elif failure["field"] == "process":
        seen = lost_call(story)
    elif failure["verdict"] == RANKS:
        seen = f"{failure['field']} after {failure['operation']}: rank 0 got {failure['expected']}, rank 1 got {failure['actual']}"
    else:
        seen = f"{failure['field']} after {failure['operation']}: expected {failure['expected']}, got {failure['actual']}"
    return f"{sut.title()}, speculative-decoding relay (DFlash): {seen}"


def _touched(failure: dict) -> str:
    """The attribute and who touched it, of an OldNameTouched."""
    return failure["actual"].removeprefix("OldNameTouched: ").partition(" (")[0]


# -- README -----------------------------------------------------------------------------------------------


def readme(
    story: dict, minimized: Minimized, runner: RunnerProcess, made: Reproducer, mode: str, not_flat: str, intact: Sut | None
) -> str:
    """What goes into an issue."""
    sut = runner.sut
    requests, iterations = minimized.size()[0], last_iteration(story) + 1
    on_zero = " on rank 0" if story["divergence"]["verdict"] == RANKS else ""
    if not_flat:
        script = (
            f"`reproduce.py` replays the schedule through the suite, because no flat script is honest here: {not_flat}. "
            f"{how_to_run(sut, '<folder of the suite>')}."
        )
    else:
        script = f"`reproduce.py` ({made.lines} lines) needs torch and SGLang only: {how_to_run(sut)}."
    lines = [
        f"# {_title(story, sut)}",
        "",
        f"**What differs.** {_sentence(story)}",
        "",
        f"**What happens{on_zero}** ({counted(requests, 'request')}, {counted(iterations, 'iteration')}, "
        + f"from {minimized.came_from()}; the smallest schedule found{_how_small(minimized, bool(story.get('raced')))})",
        "",
        *story_in_words(story),
        "",
        "![timeline](timeline.svg)",
        "",
        *order_in_words(story, minimized),
        "**How to run.** " + script + " It exits 1 on a build with the fault, 0 on a right one, 2 when it could not run.",
        "In the suite: " + _in_the_suite(mode, runner.device),
        "",
        f"**Checked.** `reproduce.py` {made.outcome.words(name_of_intact(intact, sut))}.",
        "",
        "| | |",
        "| --- | --- |",
        f"| SGLang | {sut.title()}, contract `{sut.contract}`, relay files `{sut.digest}` |",
        f"| mode, device | {mode}, {runner.identity.get('device', runner.device)} |",
        f"| torch | {runner.identity.get('torch', 'unknown')} |",
        *([f"| transformers | {transformers_of(sut)}, which this SGLang needs |"] if sut.layer else []),
        f"| suite | {suite_version()} |",
        "",
    ]
    return "\n".join(lines)


def _how_small(minimized: Minimized, raced: bool) -> str:
    if not minimized.complete:
        return f"; {minimized.stopped}, it may not be the smallest"
    if raced:
        return "; smaller ones did not fail in a few tries each, and what races does not always lose"
    return ": without any one thing in it nothing goes wrong"


def _in_the_suite(mode: str, device: str) -> str:
    if mode.startswith(WATCHING):
        return "`pytest suites/structure --sut <release or folder>` watches for the name."
    options = (f" --device {device}" if device != "cpu" else "") + (" --level scheduler" if AT_SCHEDULER in mode else "")
    return f"`tox -e replay -- schedule.json --sut <release or folder>{options}`."


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
    if failure["actual"].startswith("OldNameTouched"):
        return f"{where}{failure['operation']} touches `{_touched(failure)}`, which should be gone."
    if failure["field"] in ("exception", "assertion"):
        return f"{where}{failure['operation']} raises: `{_public(failure['actual'])}`."
    if failure["verdict"] == RANKS:
        both = f"rank 0 got `{_public(failure['expected'])}`, rank 1 `{_public(failure['actual'])}`"
        return f"{where}{who}`{failure['field']}` after {failure['operation']} is not the same on two ranks: {both}."
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
        lines.append(f"{len(lines) + 1}. It is seen in {seen_at(story, read)}.")
    return lines


def order_in_words(story: dict, minimized: Minimized) -> list[str]:
    """What is not ordered, and the order that shows it, where streams have a part in it."""
    streams = story.get("streams")
    if not streams:
        return []
    held = [
        f"from step {switch['at']} on " + (", ".join(_stream_named(stream) for stream in switch["hold"]) or "no stream")
        for switch in spelled_out(minimized.text)["interleaving"]
    ]
    order = f"held back: {'; '.join(held)}" if held else "none of its own is needed: everything runs as soon as it may"
    return [
        "**What nothing orders.** " + "; ".join(missing_edge(streams["race"])) + ".",
        "",
        f"**The order** ({counted(streams['switches'], 'change')} of stream around the race): {order}.",
        "",
        "![streams](streams.svg)",
        "",
    ]


def _stream_named(number: int) -> str:
    return stream_name(number).removeprefix("the ").removesuffix(" stream")


def _operation_words(name: str, slots: list[int]) -> str:
    left = f" leaves slots {', '.join(map(str, slots))}" if slots else ""
    return {"merge": "two batches merge", "filter": "a filter", "retract": "a retraction", "idle": "an idle batch runs"}.get(name, name) + left
