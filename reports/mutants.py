"""Try generic mutants of the SUT's relay: `tox -e mutants`, written to `measured/mutants.md`.

Relay modules run in the release and in the debug runner, kernels under the kernel suite. A survivor has a
reason in `mutant_survivors.json`, or this ends with 1.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path
from threading import Lock

from tqdm import tqdm

from fixtures.artifacts import suite_version, write_atomically
from fixtures.corpus import load_corpus
from fixtures.runner_process import RunnerProcess
from fixtures.sut import DEFAULT_RELEASE, ROOT, Sut, SutError, locate
from reports.kept import read_kept

FILE = Path(__file__).parent / "measured/mutants.md"
REASONS = Path(__file__).with_name("mutant_survivors.json")
MODULES = (
    "sglang.srt.managers.overlap_utils",
    "sglang.srt.speculative.dflash_info_v2",
    "sglang.kernels.ops.speculative.dflash",
)
WITH_KERNELS = MODULES[-1]
RUNS = (  # device, debug assertions, level, shape, schedules: each tries what those before left, and what only it executes
    ("cpu", False, "relay", "gate", 10),
    ("cpu", True, "relay", "gate", 10),
    ("cpu", False, "scheduler", "eagle", 16),
    ("cpu", False, "scheduler", "gate", 16),
    ("cpu", False, "scheduler", "chunked", 16),
    ("cpu", True, "scheduler", "gate", 8),
    ("cpu", True, "scheduler", "ngram", 4),
    ("cpu", False, "scheduler", "", len(load_corpus())),
    ("virtual", False, "relay", "gate", 8),
    ("virtual", True, "relay", "gate", 8),
    ("virtual", False, "scheduler", "gate", 8),
)
KINDS = {"eagle": "EAGLE", "chunked": "prefills in chunks", "ngram": "n-gram", "": "the corpus"}
KERNELS = "Triton kernels"
SO_FAR = ROOT / "artifacts/mutants.json"  # what was tried before a kill
Tried = dict[str, dict[str, str]]
"""What noticed each mutant, "" for a survivor, by module and name."""
BEYOND = "beyond"  # a reason that begins so tells of something that a server does and no schedule has, and the mutant counts as not caught
ON_A_GPU = "on a GPU"  # one that begins so says what the gate on a GPU notices, and the mutant counts as caught


def relay_mutants(
    sut: Sut, module: str, runs: Sequence[tuple], part: str, known: dict[str, str], artifacts: Path, keep: Callable[[str, dict[str, str]], None]
) -> None:
    """What the runners noticed, by mutant of this part; "" for a survivor. known: the same of earlier measurements. keep: gets it after each run.

    Those on simulated streams leave out the module of the kernels, whose launches they answer themselves.
    """
    noticed: dict[str, str] = {}
    for device, debug, level, shape, count in runs:
        if device == "virtual" and module == WITH_KERNELS:
            continue
        runner = RunnerProcess(sut=sut, device=device, artifacts=artifacts, debug=debug, level=level, worker="mutants", hang_limit=300)
        caught = [name for name, what in (known | noticed).items() if what]
        for result in runner.job("mutants", module=module, shape=shape, count=count, skip=caught, part=part):
            noticed[result["name"]] = re.sub(r"/\S*/(?=[^/\s]+)", "", result["noticed"])  # without the folders of this machine
        runner.close()
        keep(module, noticed)


def kernel_mutants(sut: Sut, part: str, keep: Callable[[str, dict[str, str]], None]) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "fixtures.kernel_mutants", "--sut", sut.root, "--part", part]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    keep(KERNELS, {result["name"]: result["noticed"] for result in results})


def all_mutants(sut: Sut, artifacts: Path, parts: int, at_a_time: int, runs: Sequence[tuple], before: Tried) -> Tried:
    """In so many parts for each module; what has been tried lies in SO_FAR from then on. before: what was tried earlier."""
    tried: Tried = {module: dict(before.get(module, {})) for module in (*MODULES, KERNELS)}
    one_at_a_time = Lock()

    def keep(module: str, noticed: dict[str, str]) -> None:
        with one_at_a_time:
            tried[module] |= noticed
            write_atomically(SO_FAR, json.dumps(tried, indent=1))

    with ThreadPoolExecutor(at_a_time) as pool:
        work = []
        for part in (f"{number}/{parts}" for number in range(parts)):
            for module in MODULES:
                folder = artifacts / module / part.replace("/", "-")
                work.append(pool.submit(relay_mutants, sut, module, runs, part, before.get(module, {}), folder, keep))
            if not before:
                work.append(pool.submit(kernel_mutants, sut, part, keep))
        for done in tqdm(as_completed(work), total=len(work), unit="part", disable=None):
            done.result()
    return {module: dict(sorted(noticed.items())) for module, noticed in tried.items()}


def to_markdown(tried: Tried, reasons: dict[str, str], origins: list[str]) -> str:
    lines = [
        "# Generic mutants",
        "",
        "Generated by `python -m reports.mutants`. At relay level the other suites' jobs run as well; kernels run under their suite, where every "
        "mutant counts as executed. " + " Survivors of it were tried again on ".join(f"{origin}." for origin in origins),
        "No mutation tool is used: an import of SGLang takes ten seconds, so a process is not started for each mutant, and Triton reads a "
        "kernel's source from a file of its own.",
        "An equivalent mutant changes nothing that a server does; it is out of the rate. One that is beyond the schedules would, and counts "
        "as not caught. Each has its reason below.",
        "",
        "| module | mutants | caught | equivalent | beyond the schedules | unexplained | caught, of those not equivalent |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    survivors: list[str] = []
    totals = [0] * 5
    for module, noticed in tried.items():
        alive = [name for name, what in noticed.items() if not what and not reasons.get(name, "").startswith(ON_A_GPU)]
        by_a_gpu = [name for name, what in noticed.items() if not what and name not in alive]
        beyond = [name for name in alive if reasons.get(name, "").startswith(BEYOND)]
        equivalent = [name for name in alive if name in reasons and name not in beyond]
        counts = [len(noticed), len(noticed) - len(alive), len(equivalent), len(beyond), len(alive) - len(equivalent) - len(beyond)]
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        lines.append(_row(module.removeprefix("sglang."), counts))
        survivors += ["", f"## Survivors in {module.removeprefix('sglang.')}", ""]
        survivors += [f"- `{_escaped(name)}`: {reasons.get(name, '**unexplained**')}" for name in alive]
        survivors += [f"- (caught) `{_escaped(name)}`: {reasons[name]}" for name in by_a_gpu]
    return "\n".join([*lines, _row("all", totals), *survivors]) + "\n"


def named(run: tuple) -> str:
    device, debug, level, shape, count = run
    kind = "" if shape == "gate" else f" ({KINDS[shape]})"
    return f"{count} at {level} level{kind}{' on simulated streams' if device == 'virtual' else ''}{' with debug assertions' if debug else ''}"


def origin_of(sut: Sut, runs: Sequence[tuple]) -> str:
    return (
        f"{datetime.date.today().isoformat()}: suite {suite_version()}, {sut.title()}, relay files {sut.digest}, Python "
        f"{platform.python_version()}, torch {version('torch')}; schedules of seed 1: {', '.join(map(named, runs))}"
    )


def _row(name: str, counts: list[int]) -> str:
    rate = 100 * counts[1] / max(1, counts[0] - counts[2])
    return f"| {name} | {' | '.join(str(count) for count in counts)} | {rate:.1f}% |"


def _escaped(name: str) -> str:
    return name.replace("`", "'")


def _is_whole(data: dict) -> bool:
    """Whether it is what this report writes: of every module something was tried."""
    tried = data["tried"]
    return bool(all(map(str.strip, data["origins"])) and data["origins"] and set(tried) == {*MODULES, KERNELS} and all(
        noticed and all(isinstance(what, str) for what in noticed.values()) for noticed in tried.values()
    ))  # fmt: skip


def main() -> int:
    cores = len(os.sched_getaffinity(0))
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sut", default=DEFAULT_RELEASE)
    options.add_argument("--parts", type=int, default=4 * cores, help="into how many parts each module's mutants are divided (four for each core)")
    either = options.add_mutually_exclusive_group()
    either.add_argument("--again", type=int, choices=range(len(RUNS)), help="only try again, in this run, what mutants.json holds as survivors: "
                         + ", ".join(f"{number}: {named(run)}" for number, run in enumerate(RUNS)))  # fmt: skip
    either.add_argument("--draw", action="store_true", help="only write again what mutants.json holds, with the reasons as they are now")
    asked = options.parse_args()
    if asked.parts < 1:
        options.error(f"--parts {asked.parts}: give 1 or more")
    kept, reasons = FILE.with_suffix(".json"), read_kept(REASONS, lambda reasons: all(map(str.strip, reasons.values())))
    anew = not asked.draw and asked.again is None
    data = {"origins": [], "tried": {}} if anew else read_kept(kept, _is_whole)
    if not asked.draw:
        try:
            sut = locate(asked.sut)
        except SutError as error:
            options.error(str(error))
        if not anew and sut.digest not in data["origins"][0]:
            options.error(f"--again: {kept} is of other relay files than {sut.title()} has ({sut.digest})")
        runs = RUNS if anew else RUNS[asked.again : asked.again + 1]
        with tempfile.TemporaryDirectory() as artifacts:
            data["tried"] = all_mutants(sut, Path(artifacts), asked.parts, cores, runs, data["tried"])
        data["origins"].append(origin_of(sut, runs))
        write_atomically(kept, json.dumps(data, indent=1) + "\n")
    tried = data["tried"]
    write_atomically(FILE, to_markdown(tried, reasons, data["origins"]))
    survivors = {name for noticed in tried.values() for name, what in noticed.items() if not what}
    unexplained, unused = sorted(survivors - set(reasons)), sorted(set(reasons) - survivors)
    for name in unused:
        print(f"{REASONS.name}: {name}: it did not survive, its reason can go")
    print(f"{FILE}: {len(unexplained)} unexplained survivors")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
