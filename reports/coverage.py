"""Which lines and branches of the relay's paths the schedules run: `python -m reports.coverage [RELEASE ...]`.

Writes `measured/coverage.md`, of the default release where none is named. Every line and branch of the functions on the DFlash and EAGLE paths
is either run or explained in `coverage_reviewed.json`, which a person reviewed for one release: what is neither makes the exit
status 1, and so does an explanation of what is run after all. Figures of whole files stand beside those of the paths.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tqdm import tqdm

from fixtures import traced
from fixtures.artifacts import suite_version, write_atomically
from fixtures.runner_process import RunnerProcess
from fixtures.schedule import Iteration, Request, Run, Schedule
from fixtures.sut import DEFAULT_RELEASE, RELEASES, ROOT, Sut, locate
from reports.kept import read_kept

FILE = Path(__file__).parent / "measured/coverage.md"
REVIEWED = Path(__file__).with_name("coverage_reviewed.json")
LAST = ROOT / "artifacts"
SEED = 1
RUNS = (
    # level, device, options, schedules of each algorithm
    ("relay", "cpu", {}, 40),
    ("relay", "cpu", {"debug": True}, 10),
    ("scheduler", "cpu", {}, 80),
    ("scheduler", "cpu", {"debug": True}, 20),
    ("scheduler", "cpu", {"launches": True}, 10),
    ("scheduler", "virtual", {}, 5),
    ("scheduler", "virtual", {"debug": True}, 2),
)
# An idle batch beside a peer that decodes: only a decode server has those, and drawn ones are few. And host lengths, which
# few of the schedules on simulated streams have.
WRITTEN = (
    Schedule(run=Run(host_lengths=True), requests=(Request(id=0, budget=9), Request(id=1, budget=6))).to_json(),
    *(
        Schedule(
            run=Run(overlap=overlap, prebuilt=True),
            requests=(Request(id=0, arrive=3, budget=5), Request(id=1, arrive=9, budget=5)),
            iterations=(Iteration(idle=True),) * 12,
        ).to_json()
        for overlap in (True, False)
    ),
)
ALGORITHMS = ("dflash", "eagle")
OF_THE_SCHEDULER = ("run_batch", "_relay_forward_payload", "_copy_result_to_cpu", "_forward_isolation", "_apply_war_barrier")
"""Methods of `Scheduler` on the path; of the other files all functions are, but those that are reviewed as a whole."""


@dataclass
class Part:
    """One function. lines, branches: what was not run; count: statements and branches in all."""

    file: str
    name: str
    count: int
    run: int
    entered: bool
    lines: list[int]
    branches: list[tuple[int, int]]
    reasons: dict[str, str] = field(default_factory=dict)

    def unexplained(self) -> list[str]:
        if "whole" in self.reasons and not self.entered:
            return []
        spans = [_span(key) for key in self.reasons if key != "whole" and "->" not in key]
        inside = {line for first, last in spans for line in range(first, last + 1)}
        left = [str(line) for line in self.lines if line not in inside]
        # A branch to or from a line that was not run is that line's matter.
        alone = [(a, b) for a, b in self.branches if a not in self.lines and b not in self.lines]
        return left + [f"{a}->{b}" for a, b in alone if f"{a}->{b}" not in self.reasons]

    def stale(self) -> list[str]:
        """Explanations of what is run."""
        missing = {*map(str, self.lines), *(f"{a}->{b}" for a, b in self.branches)}
        gone = ["whole"] if "whole" in self.reasons and self.entered else []
        for key in self.reasons:
            if "->" in key and key not in missing:
                gone.append(key)
            elif key != "whole" and "->" not in key and not any(_inside(line, key) for line in self.lines):
                gone.append(key)
        return gone


def _span(key: str) -> tuple[int, int]:
    first, _, last = key.partition("-")
    return int(first), int(last or first)


def _inside(line: int, key: str) -> bool:
    first, last = _span(key)
    return first <= line <= last


def measure(sut: Sut, artifacts: Path) -> tuple[list[Part], dict[str, tuple[int, int]], list[str]]:
    """Functions of the paths, statements and branches run and in all of each whole file, and what failed."""
    from coverage import Coverage

    data = [str(artifacts / f"{place}.data") for place in range(len(RUNS))]

    def run(place: int) -> list[str]:
        level, device, options, count = RUNS[place]
        worker, lines = f"coverage-{place}", []
        runner = RunnerProcess(
            sut=sut, device=device, artifacts=artifacts, worker=worker, level=level, coverage=data[place], hang_limit=600, **options
        )
        for shape in ALGORITHMS if level == "scheduler" else ALGORITHMS[:1]:
            lines += [failure["line"] for failure in runner.seeded(SEED, 0, count, shape).failures]
        for document in WRITTEN if level == "scheduler" else ():
            lines += [failure["line"] for failure in runner.schedule(document, save=False).failures]
        runner.job("save_coverage")
        runner.close()
        return lines

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        done = tqdm(pool.map(run, range(len(RUNS))), total=len(RUNS), unit="run", disable=None)
        failures = [line for lines in done for line in lines]
    whole = Coverage(data_file=str(artifacts / "all.data"), branch=True, config_file=False)
    whole.combine(data)
    whole.json_report(outfile=str(artifacts / "all.json"))
    report = json.loads((artifacts / "all.json").read_text(encoding="utf-8"))
    parts, totals = [], {}
    for path, seen in report["files"].items():
        file = next(name for name in traced.FILES if path.endswith(name))
        said = seen["summary"]
        totals[file] = said["covered_lines"] + said["covered_branches"], said["num_statements"] + said["num_branches"]
        parts += [_part(file, name, of) for name, of in seen["functions"].items() if _on_path(file, name)]
    return parts, totals, failures


def _on_path(file: str, name: str) -> bool:
    return bool(name) and (not file.endswith("/scheduler.py") or name in {f"Scheduler.{one}" for one in OF_THE_SCHEDULER})


def _part(file: str, name: str, of: dict) -> Part:
    said = of["summary"]
    count, run = said["num_statements"] + said["num_branches"], said["covered_lines"] + said["covered_branches"]
    branches = [(a, b) for a, b in of["missing_branches"]]
    return Part(file, name, count, run, bool(of["executed_lines"]), of["missing_lines"], branches)


def review(parts: list[Part], release: str) -> bool:
    """Attach what was reviewed of this release. Returns whether anything was."""
    reviewed = read_kept(REVIEWED, dict).get(release, {})
    for part in parts:
        part.reasons = reviewed.get(part.file.rpartition("/")[2], {}).get(part.name, {})
    return bool(reviewed)


def to_markdown(release: str, parts: list[Part], totals: dict[str, tuple[int, int]], failures: list[str], reviewed: bool) -> list[str]:
    lines = [
        f"## SGLang {release}",
        "",
        "| file | functions on the path | run there (lines and branches) | explained one by one | neither | whole file |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for file, (run, count) in totals.items():
        here = [part for part in parts if part.file == file and "whole" not in part.reasons]
        done, all_of = sum(part.run for part in here), sum(part.count for part in here)
        open_ones = sum(len(part.unexplained()) for part in here)
        explained = f"{all_of - done - open_ones:,}" if reviewed else "not reviewed"
        lines.append(
            f"| {file.rpartition('/')[2]} | {len(here)} | {done:,} of {all_of:,} ({done / max(all_of, 1):.1%}) | {explained} "
            f"| {open_ones:,} | {run:,} of {count:,} ({run / count:.1%}) |"
        )
    lines.append("")
    for part in parts:
        name = f"`{part.name}` ({part.file.rpartition('/')[2]})"
        lines += [f"- {name} {key}: {why}" for key, why in part.reasons.items()]
        lines += [f"- **{name} {', '.join(part.unexplained())}: not run, and not explained**"] if reviewed and part.unexplained() else []
        lines += [f"- **{name} {', '.join(part.stale())}: explained, and run**"] if part.stale() else []
    return [*lines, *(f"- **failed: {line}**" for line in failures), ""]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("releases", nargs="*", metavar="RELEASE", help=f"{DEFAULT_RELEASE} by default")
    options.add_argument("--draw", action="store_true", help="only write again what was measured here last, with the reasons as they are now")
    asked = options.parse_args()
    unknown = set(asked.releases) - set(RELEASES)
    if unknown:
        options.error(f"{', '.join(sorted(unknown))}: give releases of {', '.join(RELEASES)}")
    counts = ", ".join(f"{count} {level} on {device}{' ' + next(iter(more)) if more else ''}" for level, device, more, count in RUNS)
    good, lines, days = True, [], set()
    for release in asked.releases or [DEFAULT_RELEASE]:
        kept = LAST / f"coverage-{release}.json"
        if not asked.draw:
            with tempfile.TemporaryDirectory() as artifacts:
                found = measure(locate(None if release == DEFAULT_RELEASE else release), Path(artifacts))
            write_atomically(kept, json.dumps([[asdict(part) for part in found[0]], *found[1:]]))
        parts, totals, failures = read_kept(kept, lambda data: len(data) == 3 and data[0] and all(Part(**part) for part in data[0]) and all(count for _, count in data[1].values()))
        days.add(datetime.date.fromtimestamp(kept.stat().st_mtime).isoformat())
        parts = [Part(**part) for part in parts]
        reviewed = review(parts, release)
        open_ones = [f"{part.name}: {', '.join(part.unexplained())}" for part in parts if part.unexplained()] if reviewed else []
        stale = [f"{part.name}: {', '.join(part.stale())}" for part in parts if part.stale()]
        for what, found in (("not run, not explained", open_ones), ("explained, and run", stale), ("failed", failures)):
            print(*(f"{release}: {what}: {line}" for line in found), sep="\n", end="\n" if found else "")
        good = good and not (open_ones or stale or failures)
        lines += to_markdown(release, parts, totals, failures, reviewed)
    head = (
        f"Generated by `python -m reports.coverage` on {' and '.join(sorted(days))}: suite {suite_version()}, Python "
        f"{platform.python_version()}, seed {SEED}. Schedules, at scheduler level of each algorithm: {counts}. What only start-up runs "
        "counts as not run: this suite makes the worker without its constructor."
    )
    write_atomically(FILE, "\n".join(["# Coverage of the relay's paths", "", head, "", *lines]).rstrip() + "\n")
    print(FILE)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
