"""Measure the CUDA lane: `python -m reports.benchmark_gpu --sut RELEASE --out FILE [--steps ...] [--devices N]`.

The runners share the GPUs and are reused by every step. Writes after each step what it has seen so far.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import triton

from fixtures.artifacts import suite_version, write_atomically
from fixtures.faults import CATALOGUE
from fixtures.runner_process import RunnerFailed, RunnerProcess
from fixtures.sut import locate
from fixtures.tally import Tally

CHUNK = 20
SEEDS = 20
FAULT_SCHEDULES = 200
WITHOUT_STALLS = 40
POOL_SIZES = (1_000, 10_000, 100_000, 1_000_000)


class Fleet:
    """`workers` runners spread over `devices`, and a pool of threads that feeds them."""

    def __init__(self, sut: str, devices: list[str], workers: int, artifacts: Path) -> None:
        self.runners = [
            RunnerProcess(sut=locate(sut), device=devices[n % len(devices)], artifacts=artifacts, worker=f"fleet{n}")
            for n in range(workers)
        ]
        self.pool = ThreadPoolExecutor(workers)
        list(self.pool.map(lambda runner: runner.start(), self.runners))

    def seeded(self, seed: int, count: int, stalls: int, workers: int | None = None) -> tuple[Tally, float]:
        """Schedules 0 ... count - 1 of a seed over some of the runners; the tally and the seconds it took."""
        busy = self.runners[: workers or len(self.runners)]
        starts = list(range(0, count, CHUNK))
        total, begin = Tally(), time.perf_counter()

        def work(place: int) -> list[Tally]:
            mine = starts[place :: len(busy)]
            return [busy[place].seeded(seed, start, min(CHUNK, count - start), stalls=stalls) for start in mine]

        for tallies in self.pool.map(work, range(len(busy))):
            for tally in tallies:
                total.merge(tally.to_dict())
        return total, time.perf_counter() - begin

    def each(self, work, items: list) -> list:
        """`work(runner, item)` for every item, spread over the runners; results in the items' order."""
        results: dict[int, object] = {}

        def lane(place: int) -> None:
            for index in range(place, len(items), len(self.runners)):
                results[index] = work(self.runners[place], items[index])

        list(self.pool.map(lane, range(len(self.runners))))
        return [results[index] for index in range(len(items))]

    def close(self) -> None:
        for runner in self.runners:
            runner.close()
        self.pool.shutdown()


def false_alarms(fleet: Fleet, seeds: int, schedules: int) -> list[dict]:
    rows = []
    for seed in range(101, 101 + seeds):
        for stalls in (0, 25):
            tally, seconds = fleet.seeded(seed, schedules, stalls)
            row = {"seed": seed, "stalls": stalls, "schedules": tally.schedules, "iterations": tally.iterations}
            rows.append(row | {"seconds": round(seconds, 1), "failures": [failure["line"] for failure in tally.failures]})
    return rows


def throughput(fleet: Fleet, schedules: int) -> list[dict]:
    rows = []
    for workers in (1, 2, 4, 8, 16, 32):
        if workers <= len(fleet.runners):
            tally, seconds = fleet.seeded(55, schedules * workers, 0, workers)
            rows.append(
                {
                    "workers": workers,
                    "iterations": tally.iterations,
                    "seconds": round(seconds, 2),
                    "iterations_a_second": round(tally.iterations / seconds),
                    "shares": {name: round(part, 3) for name, part in tally.shares.items()},
                }
            )
    return rows


def stream_faults(fleet: Fleet) -> list[dict]:
    """Each cross-stream fault over twenty seeds, with every second iteration stalled and with none."""
    names = [fault.name for fault in CATALOGUE.values() if fault.seen_in == "virtual"]
    items = [(name, seed, stalls) for name in names for seed in range(1, SEEDS + 1) for stalls in (50, 0)]

    def attempt(runner: RunnerProcess, item: tuple[str, int, int]) -> dict:
        name, seed, stalls = item
        count = FAULT_SCHEDULES if stalls else WITHOUT_STALLS
        try:
            return runner.job("fault", fault=name, seed=seed, start=0, count=count, stalls=stalls)
        except RunnerFailed as death:
            return {"caught": {"line": str(death).partition(";")[0]}, "schedules": None, "seconds": 0.0}

    found = dict(zip(items, fleet.each(attempt, items), strict=True))
    rows = []
    for name in names:
        row: dict = {"fault": name, "seeds": SEEDS}
        for label, stalls in (("with_stalls", 50), ("without_stalls", 0)):
            runs = [found[name, seed, stalls] for seed in range(1, SEEDS + 1)]
            caught = [run for run in runs if run["caught"]]
            row[label] = len(caught)
            row[f"{label}_by_the_process_that_died"] = sum(run["schedules"] is None for run in caught)
            counts = sorted(run["schedules"] for run in caught if run["schedules"])
            row[f"{label}_schedules"] = counts[len(counts) // 2] if counts else None
            row[f"{label}_example"] = caught[0]["caught"]["line"] if caught else None
        rows.append(row)
    return rows


def agreement(fleet: Fleet, sut: str, artifacts: Path, schedules: int) -> dict:
    """How many schedules give the same transcript on the CPU and on the GPU."""
    host = Fleet(sut, ["cpu"], min(4, len(fleet.runners)), artifacts)
    starts = list(range(0, schedules, CHUNK))

    def values(runner: RunnerProcess, start: int) -> list[str]:
        return runner.job("values", seed=1, start=start, count=CHUNK)

    on_cpu, on_gpu = host.each(values, starts), fleet.each(values, starts)
    host.close()
    same = sum(a == b for x, y in zip(on_cpu, on_gpu, strict=True) for a, b in zip(x, y, strict=True))
    return {"schedules": schedules, "identical": same}


def memory(fleet: Fleet) -> list[dict]:
    """Bytes of the relay's token buffers for pools of a thousand to a million slots."""
    return [fleet.runners[0].job("token_memory", rows=rows) for rows in POOL_SIZES]


def floor(fleet: Fleet) -> dict:
    """One runner: the calls of schedules made again on tensors that lie ready, with nothing around them."""
    return fleet.runners[0].job("floor", seed=55, start=0, count=20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sut", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--devices", type=int, default=1, help="how many GPUs the workers are spread over")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--steps", nargs="*", help="which of the steps; all by default")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--artifacts", type=Path, default=Path("artifacts"))
    parser.add_argument("--small", action="store_true", help="a rehearsal: little of everything")
    options = parser.parse_args()
    devices = ["cpu"] if options.device == "cpu" else [f"cuda:{n}" for n in range(options.devices)]
    artifacts = options.artifacts.resolve()
    fleet = Fleet(options.sut, devices, options.workers, artifacts)
    report = {
        "suite_version": suite_version(),
        "sut": {name: value for name, value in locate(options.sut).to_dict().items() if name not in ("root", "layer")},
        "date": time.strftime("%Y-%m-%d"),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "device": fleet.runners[0].identity["device"],
        "devices": len(devices),
        "workers": options.workers,
    }
    steps = {
        "throughput": lambda: throughput(fleet, 10 if options.small else 40),
        "floor": lambda: floor(fleet),
        "memory": lambda: memory(fleet),
        "cpu_and_gpu": lambda: agreement(fleet, options.sut, artifacts, 40 if options.small else 500),
        "false_alarms": lambda: false_alarms(fleet, 1 if options.small else 5, 40 if options.small else 400),
        "stream_faults": lambda: stream_faults(fleet) if options.device != "cpu" else [],
    }
    for name in options.steps or steps:
        report[name] = steps[name]()
        write_atomically(options.out, json.dumps(report, indent=1))
        print(name, json.dumps(report[name])[:2500], flush=True)
    fleet.close()


if __name__ == "__main__":
    main()
