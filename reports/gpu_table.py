"""The CUDA lane's measurements in words: `python -m reports.gpu_table`, from `measured/h200.json` to `h200.md`.

The JSON is put together of what `reports.benchmark_gpu` wrote for one GPU and for two (`one`, `two`); the summaries of gate runs
lie beside it as `gate-h200-LEVEL-RELEASE.json`.
"""

from __future__ import annotations

import json
from pathlib import Path

from fixtures.artifacts import write_atomically

FOLDER = Path(__file__).parent / "measured"
INT32, INT64 = 4, 8  # bytes


LEVELS = ("relay", "all")
AT_SCHEDULER = ("scheduler level", "scheduler level with Triton kernels")
ALSO = ("EAGLE draft inputs", "draft probabilities", "index seeds", "n-gram draft inputs", "prebuilt arrivals", "windowed draft cache", "plan stream", "mixed batches")


def to_markdown(data: dict, gates: dict[str, list[dict]]) -> str:
    """gates: summaries of gate runs by level."""
    one, two = data["one"], data["two"]
    parts = [_head(one), _gates(gates), _scheduler(gates["all"]), _false_alarms(one["false_alarms"]), _faults(one["stream_faults"])]
    parts += [_race(data["race"]), _ranks(data["ranks"])]
    parts += [_agreement(one["cpu_and_gpu"]), _throughput(one, two), _floor(one), _memory(one["memory"])]
    return "\n\n".join(parts) + "\n"


def _head(one: dict) -> str:
    return (
        "# The CUDA lane\n\n"
        f"Measured by `python -m reports.benchmark_gpu` on {one['date']}: suite {one['suite_version']}, SGLang "
        f"{one['sut']['release']} (relay files {one['sut']['digest']}), {one['device']}, torch {one['torch']}, Triton {one['triton']}, "
        f"{one['workers']} workers where no other number is given. Written by `python -m reports.gpu_table` from `h200.json`."
    )


def _gates(gates: dict[str, list[dict]]) -> str:
    rows = [
        [one["sut"]["release"], level, one["verdict"], ", ".join(one["known"]), one["schedules"], one["iterations"]]
        + [len(one["failures"]), round(one["seconds"]), one["machine"]["date"]]
        for level, runs in gates.items()
        for one in runs
    ]
    head = ["SGLang", "`--level`", "verdict", "", "schedules", "iterations", "divergences", "seconds, start included", "date"]
    return "## The gate profile, `--device cuda -n 16`\n\n" + _table(head, rows)


def _race(race: dict) -> str:
    schedule = json.dumps(race["schedule"], separators=(",", ":"))
    return (
        "## A race made small\n\n"
        f"SGLang {race['sut']}, found by four workers, minimized alone on the GPU: {race['requests']} request, {race['iterations']} "
        f"iterations; smaller ones did not fail in three tries each. {race['line']}. Its script exits {race['on_sut']} there and {race['on_intact']} on the "
        f"intact release.\n\n```json\n{schedule}\n```"
    )


def _ranks(runs: list[dict]) -> str:
    body = [[one[name] for name in ("release", "schedules", "stalled_percent", "differences", "seconds", "date")] for one in runs]
    return (
        "## Two ranks on two GPUs\n\n`suites/differential/test_ranks.py`, each rank a process with a GPU of its own, of which one is stalled, "
        "for a few milliseconds then. Since then a stall of a rank outlasts an iteration of the host: so a build whose scheduler looks at how far its "
        "forward is was RANKS DIVERGED on the same two GPUs (`suites/selftest/test_ranks.py`); with shorter stalls it was not.\n\n"
        + _table(["SGLang", "schedules", "percent of iterations stalled", "differences", "seconds, start included", "date"], body)
    )


def _scheduler(runs: list[dict]) -> str:
    body = [
        [one["sut"]["release"], sum(one["modes"].get(mode, 0) for mode in AT_SCHEDULER), *(one["modes"].get(name, "-") for name in ALSO)]
        for one in runs
    ]
    return (
        "## Scheduler level\n\nOf the second kind of run above: SGLang's own event loop and workers on real streams, a stalled iteration in "
        "four. 0.5.15.post1 relays nothing for n-gram speculation, has no mixed batches with speculation, and its decode server cannot run "
        "DFlash.\n\n" + _table(["SGLang", "iterations", *ALSO], body)
    )


def _false_alarms(rows: list[dict]) -> str:
    body = [[row["seed"], row["stalls"], row["schedules"], row["iterations"], len(row["failures"]), row["seconds"]] for row in rows]
    return "## False alarms\n\n" + _table(
        ["seed", "percent of iterations stalled", "schedules", "iterations", "divergences", "seconds"], body
    )


def _faults(rows: list[dict]) -> str:
    body = [
        [row["fault"], f"{row['with_stalls']} of {row['seeds']}", row["with_stalls_by_the_process_that_died"]]
        + [row["with_stalls_schedules"] or "-", f"{row['without_stalls']} of {row['seeds']}"]
        for row in rows
    ]
    return (
        "## Cross-stream faults\n\nTwenty seeds each; every second iteration stalled, or none. A fault that reads an index from "
        "poisoned memory may fire a device-side assertion: the process is lost, and its schedule is an ERROR.\n\n"
        + _table(["fault", "caught with stalls", "of these by a lost process", "schedules, median", "caught without stalls"], body)
    )


def _agreement(found: dict) -> str:
    return f"## CPU and GPU\n\n{found['identical']} of {found['schedules']} schedules gave the same transcript values on both."


def _throughput(one: dict, two: dict) -> str:
    by_workers = {row["workers"]: row for row in two["throughput"]}
    rows = []
    for row in one["throughput"]:
        rows.append([row["workers"], row["iterations_a_second"], by_workers.get(row["workers"], {}).get("iterations_a_second", "-")])
    known = {row["workers"] for row in one["throughput"]}
    rows += [[n, "-", row["iterations_a_second"]] for n, row in by_workers.items() if n not in known]
    most = max(one["throughput"], key=lambda row: row["workers"])
    whole = sum(most["shares"].values())
    shares = ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in sorted(most["shares"].items(), key=lambda item: -item[1]))
    return (
        "## Throughput, iterations a second\n\n"
        + _table(["workers", "one GPU", "two GPUs"], rows)
        + "\n\nOn two GPUs nothing had run before, so each row pays for what its new workers compile first."
        + f"\n\nWhere the time goes on one GPU with {most['workers']} workers: {shares}."
    )


def _floor(one: dict) -> str:
    found, alone = one["floor"], min(one["throughput"], key=lambda row: row["workers"])
    floor = 1000 * found["seconds"] / found["iterations"]
    whole = 1000 * alone["seconds"] / alone["iterations"]
    return (
        f"The floor, one worker: the same {found['calls']:,} relay calls of {found['schedules']} schedules, made again on tensors that "
        f"lie ready with nothing around them, take {floor:.2f} ms an iteration; a whole trial, oracle and judge included, {whole:.2f} ms."
    )


def _memory(rows: list[dict]) -> str:
    body = []
    for row in rows:
        slots, buffer = row["rows"], row["output_tokens_buf"]
        body.append([slots, buffer, slots * INT32, f"+{buffer - slots * INT32:,}", slots * INT32, row["allocated"]])
    return (
        "## Memory, bytes\n\nThe relay's token buffer is int64. `verified_id_buf`, int32, is gone: what int64 costs over int32 is what "
        "its end saves; the old relay held both buffers.\n\n"
        + _table(
            ["slots", "`output_tokens_buf`", "the same as int32", "int64 costs", "`verified_id_buf` freed", "allocated, lengths included"], body
        )
    )


def _table(head: list[str], rows: list[list]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + " ---: |" * len(head)]
    lines += ["| " + " | ".join(f"{cell:,}" if isinstance(cell, (int, float)) else str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    data = json.loads((FOLDER / "h200.json").read_text(encoding="utf-8"))
    gates = {
        level: [json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob(f"gate-h200-{level}-*.json"), reverse=True)]
        for level in LEVELS
    }
    write_atomically(FOLDER / "h200.md", to_markdown(data, gates))


if __name__ == "__main__":
    main()
