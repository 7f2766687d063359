"""How small and how fast: the minimizer on broken copies of SGLang's relay, beside Hypothesis and a greedy loop.

    python -m reports.benchmark_reproducers [NAME ...] [--rivals] --out DIR

Writes one JSON file for each broken copy as it goes; `--table` prints the Markdown table of those there are.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Flaky
from tqdm import tqdm

from fixtures.artifacts import write_atomically
from fixtures.broken_copy import broken_copy
from fixtures.broken_relays import BROKEN_RELAYS, RELEASE, BrokenRelay
from fixtures.draw import schedules, seeded
from fixtures.kinds import kind_of
from fixtures.neighbours import simpler
from fixtures.runner_process import RunnerProcess
from fixtures.schedule import Schedule, parse
from fixtures.sut import Sut, locate
from reports.checked_script import exit_of
from reports.minimize import minimize
from reports.reproducer import story_of_smallest, write_reproducer
from reports.trials import Trials

MOST_DRAWN = 400
RIVAL_SECONDS = 60.0


def measure(name: str, broken: BrokenRelay, out: Path, intact: Sut, rivals: bool) -> dict:
    """One broken copy: found, minimized, checked against every simpler schedule, written down and run."""
    copy = out / "copies" / name
    if not copy.exists():
        broken_copy(Path(intact.root), copy, [broken.edit])
    runner = RunnerProcess(sut=locate(str(copy)), device="cpu", artifacts=out, worker=name, debug=broken.debug)
    try:
        runner.start()
        trials = Trials(runner)
        found = first_failure(trials, broken.field)
        minimized = minimize(found.to_json(), runner)
        smallest = parse(minimized.text)
        kind = kind_of(minimized.failure)
        trials = Trials(runner)
        trials.first(minimized.text)
        begin = time.monotonic()
        steps = list(simpler(smallest))
        left = [what for what, schedule in steps if same_kind(trials(schedule.to_json()), kind)]
        checked = time.monotonic() - begin
        made = write_reproducer(out / "reproducers" / name, minimized, story_of_smallest(minimized, runner), runner, intact)
        result = {
            "name": name,
            "kind": kind,
            "drawn": [len(found.requests), len(found.iterations), len(found.to_json())],
            "minimized": [len(smallest.requests), made.iterations, len(minimized.text)],
            "tried": minimized.tried,
            "seconds": round(minimized.seconds, 2),
            "complete": minimized.complete,
            "simpler": len(steps),
            "still_failing": left,
            "check_seconds": round(checked, 2),
            "flat": made.flat,
            "lines": made.lines,
            "exit_on_broken": made.outcome.on_sut,
            "exit_on_intact": made.outcome.on_intact if made.outcome.on_intact is not None else exit_of(made.folder / "reproduce.py", intact),
            "torch": runner.identity["torch"],
            "schedule": minimized.text,
        }
        if rivals:
            result["greedy"] = greedy(trials, found, kind)
            result["hypothesis"] = hypothesis_alone(trials, kind)
        return result
    finally:
        runner.close()


def first_failure(trials: Trials, field: str) -> Schedule:
    """The first drawn schedule that fails in this field. Raises LookupError."""
    for index in range(MOST_DRAWN):
        schedule = seeded(1, index)
        failure = trials(schedule.to_json())
        if failure is not None and failure["field"].split(",")[0] == field:
            return schedule
    raise LookupError(f"none of {MOST_DRAWN} schedules fails in {field}")


def same_kind(failure: dict | None, kind: tuple) -> bool:
    return failure is not None and kind_of(failure) == kind


def greedy(trials: Trials, found: Schedule, kind: tuple) -> dict:
    """Take the first single step that still fails, and begin again; no blocks, no order, no cache."""
    begin, tried, best = time.monotonic(), 0, found
    went_on = True
    while went_on and time.monotonic() - begin < RIVAL_SECONDS:
        went_on = False
        for _, schedule in simpler(best):
            tried += 1
            if same_kind(trials(schedule.to_json()), kind):
                best, went_on = schedule, True
                break
            if time.monotonic() - begin > RIVAL_SECONDS:
                break
    return _rival(trials, best, tried, begin, not went_on)


def hypothesis_alone(trials: Trials, kind: tuple) -> dict:
    """Hypothesis draws until it has found the failure by itself, and shrinks it."""
    begin, tried = time.monotonic(), 0
    smallest: list[Schedule] = []

    @settings(
        max_examples=2000,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(schedules())
    def explore(schedule: Schedule) -> None:
        nonlocal tried
        tried += 1
        if time.monotonic() - begin < RIVAL_SECONDS and same_kind(trials(schedule.to_json()), kind):
            smallest[:] = [schedule]
            raise AssertionError

    try:
        explore()
    except (AssertionError, Flaky):
        pass
    in_time = time.monotonic() - begin < RIVAL_SECONDS
    return _rival(trials, smallest[0], tried, begin, in_time) if smallest else {"found": False, "tried": tried}


def _rival(trials: Trials, best: Schedule, tried: int, begin: float, ended: bool) -> dict:
    seconds = round(time.monotonic() - begin, 2)
    failure = trials(best.to_json())
    size = [len(best.requests), failure["iteration"] + 1, len(best.to_json())]
    return {"found": True, "size": size, "tried": tried, "seconds": seconds, "ended": ended}


def table(results: list[dict]) -> str:
    """Markdown: a line for each broken copy, and the medians."""
    lines = [
        "| broken copy | shows in | drawn | minimized | simpler tried, failing | s | `reproduce.py` | broken, intact | greedy: size, s | Hypothesis alone: size, s |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in results:
        script = f"{'flat' if r['flat'] else 'replay'}, {r['lines']} lines"
        lines.append(
            f"| {r['name']} | {r['kind'][1]} | {_size(r['drawn'])} | {_size(r['minimized'])} | {r['simpler']}, {len(r['still_failing'])} "
            f"| {r['seconds']} | {script} | {r['exit_on_broken']}, {r['exit_on_intact']} | {_rival_cell(r.get('greedy'))} "
            f"| {_rival_cell(r.get('hypothesis'))} |"
        )
    medians = [statistics.median(r["minimized"][place] for r in results) for place in range(3)]
    seconds = statistics.median(r["seconds"] for r in results)
    greedy_seconds = [r["greedy"]["seconds"] for r in results if "greedy" in r]
    lines.append(f"| **median of {len(results)}** | | {_size([statistics.median(r['drawn'][i] for r in results) for i in range(3)])} "
                 f"| {_size(medians)} | | {seconds} | | | {statistics.median(greedy_seconds) if greedy_seconds else ''} s | |")
    return "\n".join(lines)


def _size(size: list) -> str:
    return f"{size[0]:g} × {size[1]:g}, {size[2]:g} B".replace(" 0,", " ?,")


def _rival_cell(rival: dict | None) -> str:
    if rival is None:
        return "not run"
    if not rival["found"]:
        return f"not found in {rival['tried']}"
    return f"{_size(rival['size'])}, {rival['seconds']}" + ("" if rival["ended"] else " (time over)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="broken copies; all by default")
    parser.add_argument("--rivals", action="store_true", help="also a greedy loop, and Hypothesis alone")
    parser.add_argument("--table", action="store_true", help="measure nothing, print the table of what there is")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    asked = parser.parse_args()
    unknown = set(asked.names) - set(BROKEN_RELAYS)
    if unknown:
        parser.error(f"no broken copy is called {', '.join(sorted(unknown))}")
    names = asked.names or list(BROKEN_RELAYS)
    if not asked.table:
        intact = locate(RELEASE)
        for name in tqdm(names, unit="copy"):
            result = measure(name, BROKEN_RELAYS[name], asked.out, intact, asked.rivals)
            write_atomically(asked.out / "results" / f"{name}.json", json.dumps(result, indent=2))
    files = [asked.out / "results" / f"{name}.json" for name in names]
    print(table([json.loads(file.read_text(encoding="utf-8")) for file in files if file.is_file()]))


if __name__ == "__main__":
    sys.exit(main())
