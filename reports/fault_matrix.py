"""Which suite catches which planted fault: `python -m reports.fault_matrix`, written to `measured/faults.*`.

Every fault that can be planted is tried in every suite that can reach it, and against the plain state machine.
The table is `faults.md`, the picture `faults.svg`, and what both are made of `faults.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from html import escape
from pathlib import Path

from tqdm import tqdm

from fixtures.artifacts import suite_version, write_atomically
from fixtures.faults import CATALOGUE, CannotPlant, Fault
from fixtures.runner_process import RunnerFailed, RunnerProcess
from fixtures.sut import DEFAULT_RELEASE, ROOT, Sut, SutError, locate
from reports.kept import read_kept

FOLDER = Path(__file__).parent / "measured"
SO_FAR = ROOT / "artifacts/faults.json"  # what was found before a kill
SEED, EXAMPLES = 1, 100
PARTS = 4  # of what a column takes; each imports SGLang anew
STREAMS = ("release", "debug", "scheduler", "virtual", "virtual scheduler")
WITH_STREAMS = STREAMS[3:]
SCHEDULES = {  # where a fault is to be seen, and elsewhere
    "release": (200, 40), "debug": (200, 40), "scheduler": (200, 20), "virtual": (3, 3), "virtual scheduler": (24, 3),
}  # fmt: skip
OTHERS = ("dtype", "structure", "unconditional")
MACHINE, RANKS, ON_RANKS = "state machine", "ranks", 24
COLUMNS = (*STREAMS, RANKS, *OTHERS, "kernels", MACHINE)


def in_kernels(fault: Fault) -> bool:
    return fault.site.startswith("kernels.")


def measure(sut: Sut, artifacts: Path) -> dict[str, dict[str, dict]]:
    """By fault and column: caught, by what, after how many schedules and seconds. Absent: not reached there."""
    found: dict[str, dict[str, dict]] = {name: {} for name in CATALOGUE}
    reached = [fault for fault in CATALOGUE.values() if not in_kernels(fault)]
    pairs = [(fault.name, suite) for fault in reached for suite in OTHERS]
    pairs += [(fault.name, "kernels") for fault in CATALOGUE.values() if in_kernels(fault)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        parts = [(kind, part) for part in range(PARTS) for kind in STREAMS]
        work = [pool.submit(by_streams, sut, artifacts / f"{kind} {part}", kind, reached[part::PARTS]) for kind, part in parts]
        work += [pool.submit(by_ranks, sut, artifacts / RANKS, [fault for fault in reached if fault.seen_in == RANKS])]
        work += [pool.submit(by_suites, sut, pairs[part::PARTS]) for part in range(PARTS)]
        for done in tqdm(as_completed(work), total=len(work), unit="part", disable=None):
            for name, column, cell in done.result():
                found[name][column] = cell
            write_atomically(SO_FAR, json.dumps(found, indent=1))
    return found


Cell = tuple[str, str, dict]  # fault, column, what was seen


def by_streams(sut: Sut, artifacts: Path, kind: str, faults: list[Fault]) -> list[Cell]:
    """Each fault under drawn schedules, in one kind of runner; in the release runner under the plain state machine too."""
    device, level = "virtual" if kind in WITH_STREAMS else "cpu", "scheduler" if "scheduler" in kind else "relay"
    runner = RunnerProcess(sut, device, artifacts, worker="matrix", debug=kind == "debug", level=level, hang_limit=300)
    runner.seeded(SEED, 0, 2)  # so that no fault pays for what a process does once
    cells: list[Cell] = []
    for fault in faults:
        if fault.seen_in in WITH_STREAMS and kind not in WITH_STREAMS:
            continue  # its streams are torch's no-ops here
        deaths, count = runner.deaths, SCHEDULES[kind][fault.seen_in != kind]
        try:
            tried = runner.job("fault", fault=fault.name, seed=SEED, start=0, count=count)
        except RunnerFailed as error:
            cells += without_a_result(fault, kind, error, runner.deaths > deaths)
            continue
        by = without_places(tried["caught"]["line"]) if tried["caught"] else ""
        seen = {"caught": bool(by), "by": by, "schedules": tried["schedules"], "seconds": tried["seconds"]}
        cells.append((fault.name, kind, seen))
        if kind == "release" and fault.seen_in == kind:  # what debug assertions or other suites see, it has no means for
            cells.append((fault.name, MACHINE, by_machine(runner, fault)))
    runner.close()
    return cells


def by_machine(runner: RunnerProcess, fault: Fault) -> dict:
    """In the plain state machine; what kills its process or hangs it is caught."""
    begin = time.perf_counter()
    try:
        found = runner.job("state_machine", fault=fault.name, examples=EXAMPLES)
    except RunnerFailed as error:
        return {"caught": True, "by": without_places(str(error)), "seconds": time.perf_counter() - begin}
    return {"caught": found["caught"], "by": found["what"], "seconds": found["seconds"]}


def by_ranks(sut: Sut, artifacts: Path, faults: list[Fault]) -> list[Cell]:
    """Faults that only two ranks beside each other show, under the schedules in which they differ first."""
    ranks = [RunnerProcess(sut, "cpu", artifacts, worker=f"rank{rank}", level="scheduler", rank=rank) for rank in (0, 1)]
    cells = []
    for fault in faults:
        begin = time.perf_counter()
        arguments = {"seed": SEED, "start": 0, "count": ON_RANKS}
        deaths = [runner.deaths for runner in ranks]
        try:
            digests = [runner.job("planted", fault=fault.name, job="digests", arguments=arguments) for runner in ranks]
        except RunnerFailed as error:
            cells += without_a_result(fault, RANKS, error, [runner.deaths for runner in ranks] != deaths)
            continue
        first = next((index for index, (a, b) in enumerate(zip(*digests, strict=True)) if a != b), None)
        seen = {"caught": first is not None, "by": "" if first is None else "the ranks' transcripts differ"}
        seen |= {"schedules": ON_RANKS if first is None else first + 1, "seconds": time.perf_counter() - begin}
        cells.append((fault.name, RANKS, seen))
    for runner in ranks:
        runner.close()
    return cells


def by_suites(sut: Sut, pairs: list[tuple[str, str]]) -> list[Cell]:
    command = [sys.executable, "-W", "ignore", "-m", "fixtures.faults.in_suites", "--sut", sut.root]
    done = subprocess.run(command, cwd=ROOT, input=json.dumps(pairs), capture_output=True, text=True, check=True)
    return [
        (one["fault"], one["suite"], {"caught": one["caught"], "by": one["test"].rpartition("::")[2], "seconds": one["seconds"]})
        for one in map(json.loads, done.stdout.splitlines())
        if one["caught"] is not None
    ]


def without_a_result(fault: Fault, column: str, error: RunnerFailed, died: bool) -> list[Cell]:
    """Of a fault that killed its runner, which is an ERROR in a gate; none where the release cannot have it; any other error is told."""
    if died:
        return [(fault.name, column, {"caught": True, "by": without_places(str(error))})]
    if CannotPlant.__name__ not in str(error):
        tqdm.write(f"{fault.name} ({column}): {error}", file=sys.stderr)
    return []


def without_places(line: str) -> str:
    """A line without the folders of this machine."""
    return re.sub(r"/\S*/(?=[^/\s]+)", "", line)


def summary(found: dict[str, dict[str, dict]]) -> dict:
    """Counts over all faults; medians of where each is to be seen by schedules."""
    there = list(CATALOGUE.values())
    own = [found[fault.name].get(fault.seen_in, {}) for fault in there]
    streams = [cell for fault, cell in zip(there, own, strict=True) if fault.seen_in in STREAMS and "schedules" in cell and cell["caught"]]
    machine = [found[fault.name][MACHINE] for fault in there if MACHINE in found[fault.name]]
    return {
        "faults": len(there),
        "caught": sum(1 for cell in own if cell.get("caught")),
        "missed": [fault.name for fault, cell in zip(there, own, strict=True) if not cell.get("caught")],
        "median_schedules": statistics.median(cell["schedules"] for cell in streams),
        "most_schedules": max(cell["schedules"] for cell in streams),
        "most_seconds": round(max(cell["seconds"] for cell in streams), 3),
        "median_seconds": round(statistics.median(cell["seconds"] for cell in streams), 3),
        "machine_tried": len(machine),
        "machine_caught": sum(cell["caught"] for cell in machine),
        "machine_median_seconds": round(statistics.median(cell["seconds"] for cell in machine if cell["caught"]), 3),
    }


def to_markdown(found: dict[str, dict[str, dict]], said: dict, origin: str) -> str:
    lines = [
        "# Planted faults",
        "",
        origin,
        "",
        f"{said['faults']} faults, of which {said['caught']} are caught where they should be"
        + (f", and not: {', '.join(said['missed'])}." if said["missed"] else ".")
        + f" Faults that schedules see: {said['median_schedules']:g} schedules and {said['median_seconds']:g} s at the median, "
        f"{said['most_schedules']} and {said['most_seconds']:g} s at most. Of those without debug assertions the plain state machine over `FutureMap` ({EXAMPLES} examples, "
        f"fixtures/faults/state_machine.py) sees {said['machine_caught']} of {said['machine_tried']}, after "
        f"{said['machine_median_seconds']:g} s at the median.",
        "",
        "A number is how many schedules it took. **Bold**: where the selftest asserts it. Empty: caught nothing; "
        "`-`: cannot be reached there.",
    ]
    family = ""
    for fault in CATALOGUE.values():
        if fault.family != family:
            family = fault.family
            lines += ["", f"## {family[0].upper()}{family[1:]}", "", f"| fault | what it does | {' | '.join(COLUMNS)} |"]
            lines.append("| --- | --- |" + " :---: |" * len(COLUMNS))
        text = fault.text + (f" Like {fault.like}." if fault.like else "") + (f" *{fault.taught}*" if fault.taught else "")
        cells = [_cell(fault, found[fault.name].get(column), column) for column in COLUMNS]
        lines.append(f"| {fault.name} | {text} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(fault: Fault, cell: dict | None, column: str) -> str:
    if cell is None:
        return "-"
    if not cell["caught"]:
        return ""
    text = str(cell["schedules"]) if "schedules" in cell else "yes"
    return f"**{text}**" if column == fault.seen_in else text


ROW, CELL, NAME, TOP = 14, 84, 330, 40
COLOURS = {"asserted": "#1b7f4d", "caught": "#9fd4b4", "nothing": "#f2f2f2", "unreached": "#ffffff"}


def to_svg(found: dict[str, dict[str, dict]]) -> str:
    """One row for each fault, one column for each suite; families apart from each other."""
    parts, y, family = [], TOP, ""
    for place, column in enumerate(COLUMNS):
        parts.append(f'<text x="{NAME + place * CELL + CELL / 2}" y="{TOP - 16}" text-anchor="middle">{column}</text>')
    for fault in CATALOGUE.values():
        if fault.family != family:
            family = fault.family
            y += ROW + 6
            parts.append(f'<text x="4" y="{y - 4}" font-weight="bold">{escape(family)}</text>')
        title = f"<title>{escape(fault.text)}</title>"
        parts.append(f'<text x="{NAME - 6}" y="{y + ROW - 4}" text-anchor="end">{fault.name}{title}</text>')
        for place, column in enumerate(COLUMNS):
            cell = found[fault.name].get(column)
            kind = _kind(fault, cell, column)
            told = f"{fault.name} in {column}: {(cell or {}).get('by') or kind}"
            text = str(cell["schedules"]) if kind in ("asserted", "caught") and "schedules" in cell else ""
            x, ink = NAME + place * CELL, "#ffffff" if kind == "asserted" else "#333333"
            parts.append(
                f'<g><title>{escape(told)}</title><rect x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{ROW - 2}" '
                f'fill="{COLOURS[kind]}"/><text x="{x + CELL / 2}" y="{y + ROW - 4}" text-anchor="middle" fill="{ink}">{text}</text></g>'
            )
        y += ROW
    width, height = NAME + CELL * len(COLUMNS) + 4, y + 30
    x = 4
    for kind, words in (
        ("asserted", "caught where it should be, after so many schedules"), ("caught", "caught here too"),
        ("nothing", "not seen here"),
    ):  # fmt: skip
        parts.append(f'<rect x="{x}" y="{y + 12}" width="12" height="12" fill="{COLOURS[kind]}"/><text x="{x + 16}" y="{y + 22}">{words}</text>')
        x += 40 + 6 * len(words)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="10" role="img" aria-label="Which suite catches which planted fault">'
        + "".join(parts)
        + "</svg>\n"
    )


def _kind(fault: Fault, cell: dict | None, column: str) -> str:
    if cell is None:
        return "unreached"
    if not cell["caught"]:
        return "nothing"
    return "asserted" if column == fault.seen_in else "caught"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sut", default=DEFAULT_RELEASE)
    options.add_argument("--draw", action="store_true", help="only draw again what faults.json holds")
    asked = options.parse_args()
    kept = FOLDER / "faults.json"
    if asked.draw:
        data = read_kept(kept, lambda data: data["origin"] and set(data["found"]) == set(CATALOGUE))
        data["summary"] = summary(data["found"])
    else:
        try:
            sut = locate(asked.sut)
        except SutError as error:
            options.error(str(error))
        with tempfile.TemporaryDirectory() as artifacts:
            found = measure(sut, Path(artifacts))
        origin = (
            f"Generated by `python -m reports.fault_matrix` on {datetime.date.today().isoformat()}: suite {suite_version()}, "
            f"{sut.title()}, relay files {sut.digest}, Python {platform.python_version()}, as many jobs at a time as there are CPU cores "
            f"({len(os.sched_getaffinity(0))}); the first schedules of seed {SEED}, where a fault is to be seen and elsewhere at most "
            + ", ".join(f"{there} and {elsewhere} ({kind})" for kind, (there, elsewhere) in SCHEDULES.items())
            + "; imports not counted."
        )
        data = {"origin": origin, "summary": summary(found), "found": found}
        write_atomically(kept, json.dumps(data, indent=1) + "\n")
    write_atomically(FOLDER / "faults.md", to_markdown(data["found"], data["summary"], data["origin"]))
    write_atomically(FOLDER / "faults.svg", to_svg(data["found"]))
    print(json.dumps(data["summary"]))
    return 1 if data["summary"]["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
