"""Cross-stream faults around SGLang's own scheduler, by release: `python -m reports.scheduler_race_table`.

Written to `measured/scheduler_races.md`, and as data to `scheduler_races.json`. First the lost publish fence: what else orders the
next resolve with the publish, in each release, where verifies run as captured graphs (a server's default) and where they do not.
Then every fault of the catalogue that only streams around the scheduler show, and intact releases in the same orders.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import tempfile
from pathlib import Path

from fixtures.artifacts import suite_version, write_atomically
from fixtures.draw import SHAPES, seeded
from fixtures.faults import CATALOGUE
from fixtures.runner_process import RunnerFailed, RunnerProcess
from fixtures.schedule import Switch
from fixtures.sut import RELEASES, locate
from fixtures.virtual.interleaving import STREAMS
from fixtures.virtual_lane import stream_name

MEASURED = Path(__file__).parent / "measured"
SEED, WITHIN, INTACT = 1, 12, 3
FENCE = "publish-event-recorded-off-the-forward-stream"
FENCE_SCHEDULES = 4
ORDERS = {"program order": ()} | {f"{stream_name(stream)} late": (Switch(hold=(stream,)),) for stream in range(STREAMS + 1)}
LATE = ("the schedule stream late", "the forward stream late")
BY_ORDER = ("race", "lifetime")
FAULTS = [fault for fault in CATALOGUE.values() if fault.seen_in == "virtual scheduler"]


def lost_fence(runner: RunnerProcess, eager: bool) -> dict:
    """pairs: the races that are reported in program order, by the two call sites and the stream that reads, each with how many schedules
    report it. harm: the first wrong value of each kind with a stream late, and which. barrier: how often it waited for what.
    """
    pairs: dict[tuple[str, str, str], int] = {}
    harms: dict[str, str] = {}

    def tried(index: int, switches: tuple[Switch, ...]) -> dict:
        schedule = seeded(SEED, index, SHAPES["dflash"]).model_copy(update={"interleaving": switches})
        return runner.job("raced", fault=FENCE, document=schedule.to_json(), eager=eager)

    for index in range(FENCE_SCHEDULES):
        seen = tried(index, ())["races"]
        for race in seen:
            key = (race["first"]["site"], race["second"]["site"], race["second"]["stream"])
            pairs[key] = pairs.get(key, 0) + 1
        for order in LATE if seen else ():  # what is ordered cannot go wrong in another order
            divergence = tried(index, ORDERS[order])["divergence"]
            if divergence is not None and divergence["field"] not in BY_ORDER:
                harms.setdefault(divergence["field"], order)
    return {
        "eager": eager,
        "pairs": [{"places": places, "stream": stream, "schedules": runs} for (*places, stream), runs in pairs.items()],
        "harm": [{"field": field, "order": order} for field, order in harms.items()],
        "barrier": runner.job("barrier", seed=SEED, start=0, count=FENCE_SCHEDULES, eager=eager),
    }


def caught(runner: RunnerProcess, fault: str) -> dict:
    """by: what caught it in program order, and after how many schedules; places: its two call sites."""
    for index in range(WITHIN):
        try:
            tried = runner.job("raced", fault=fault, document=seeded(SEED, index).to_json())
        except RunnerFailed as error:
            if "CannotPlant" in str(error):
                return {"fault": fault, "by": "cannot be planted", "schedules": 0, "places": []}
            raise
        if tried["divergence"] is not None:
            places = [tried["races"][0][side]["site"] for side in ("first", "second")] if tried["races"] else []
            return {"fault": fault, "by": tried["divergence"]["field"], "schedules": index + 1, "places": places}
    return {"fault": fault, "by": "", "schedules": WITHIN, "places": []}


def harm(runner: RunnerProcess, row: dict) -> dict:
    """The first wrong value from the schedule on that caught the fault, and the order that shows it."""
    for index in range(row["schedules"] - 1, row["schedules"] + 3):
        for order, switches in list(ORDERS.items())[1:]:
            schedule = seeded(SEED, index).model_copy(update={"interleaving": switches})
            divergence = runner.job("raced", fault=row["fault"], document=schedule.to_json())["divergence"]
            if divergence is not None and divergence["field"] not in BY_ORDER:
                return {"harm": f"{divergence['field'].split(',')[0]} after {divergence['operation']}", "order": order}
    return {"harm": "", "order": ""}


def run_release(release: str, newest: bool, artifacts: Path) -> dict:
    sut = locate(release)
    runner = RunnerProcess(
        sut=sut, device="virtual", artifacts=artifacts, worker=f"races-{release}", hang_limit=600, level="scheduler"
    )
    torch = runner.start()["torch"]
    fences = [lost_fence(runner, eager) for eager in (False, True)]
    rows = [caught(runner, fault.name) for fault in FAULTS]
    if newest:
        rows = [row | harm(runner, row) for row in rows]
    ran = runner.job("interleaved", seed=SEED, start=0, count=INTACT)
    known = runner.job("known_races")
    runner.close()
    return {
        "release": release,
        "digest": sut.digest,
        "torch": torch,
        "fence": fences,
        "faults": rows,
        "iterations": ran["tally"]["iterations"],
        "alarms": [failure["line"] for failure in ran["tally"]["failures"]],
        "known": known,
        "milliseconds": round(1000 * ran["seconds"] / max(1, ran["tally"]["iterations"]), 1),
    }


def to_markdown(rows: list[dict], date: str) -> str:
    newest = rows[-1]
    lines = [
        "# Cross-stream faults around SGLang's own scheduler, on simulated streams",
        "",
        f"Generated by `python -m reports.scheduler_race_table` on {date}: suite {suite_version()}, Python {platform.python_version()}, "
        f"torch {newest['torch']}, {os.cpu_count()} CPU cores that were not idle otherwise, seed {SEED}. SGLang's own event loop, "
        "`run_batch`, write-after-read barrier, record ring, relay and DFlash worker; the model forwards are this suite's.",
        "",
        "## The publish fence lost",
        "",
        f"Public issue 30435, planted as `{FENCE}`: is the next resolve still ordered with the publish? "
        f"{FENCE_SCHEDULES} schedules. Reported: the two call sites, the stream that reads, and in how many of the {FENCE_SCHEDULES}, in "
        f"program order. Values: what differed with {' or '.join(LATE)}, and which. Barrier: what `_apply_war_barrier` waited "
        "for after a verify, how often, and where it stands. A captured verify is a server's default; eager is `--disable-cuda-graph`. "
        f"{sum(1 for index in range(FENCE_SCHEDULES) if seeded(SEED, index, SHAPES['dflash']).run.host_lengths)} of the schedules mirror "
        "lengths to the host.",
        "",
        "| SGLang | verify | barrier after a verify | reported | values | so |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        for fence in row["fence"]:
            reported = "<br>".join(
                f"`{pair['places'][0]}` and `{pair['places'][1]}`, {pair['stream']}: {pair['schedules']}" for pair in fence["pairs"]
            )
            values = "; ".join(f"{harm['field']} ({harm['order']})" for harm in fence["harm"]) or "the same"
            lines.append(
                f"| {row['release']} | {'eager' if fence['eager'] else 'captured'} | {waits_for(fence['barrier'])} "
                f"| {reported or 'no'} | {values} | {verdict(fence)} |"
            )
    lines += [
        "",
        f"## Missing edges, on SGLang {newest['release']}",
        "",
        "`caught`: what the first schedule in program order gives, where every value is right. `harm`: the first wrong value, and the order "
        "that shows it.",
        "",
        "| fault | what it does | caught | between | harm | order |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for fault, row in zip(FAULTS, newest["faults"], strict=True):
        places = " and ".join(f"`{place}`" for place in row["places"])
        like = f" Like {fault.like}." if fault.like else ""
        lines.append(f"| {fault.name} | {fault.text}{like} | {_cell(row)} | {places} | {row['harm'] or 'none'} | {row['order']} |")
    lines += [
        "",
        "## By release",
        "",
        f"What catches each fault in program order within {WITHIN} schedules, and after how many where that is more than one; last what "
        f"intact releases gave in {INTACT} schedules, each in {len(ORDERS)} orders, and the CPU time of an iteration with all checks, the "
        "oracle's run and the judge included.",
        "",
        "| fault | " + " | ".join(row["release"] for row in rows) + " |",
        "| --- |" + " --- |" * len(rows),
    ]
    for place, fault in enumerate(FAULTS):
        lines.append(f"| {fault.name} | " + " | ".join(_cell(row["faults"][place]) for row in rows) + " |")
    lines.append("| intact: iterations | " + " | ".join(f"{row['iterations']:,}" for row in rows) + " |")
    lines.append("| intact: divergences | " + " | ".join(str(len(row["alarms"])) for row in rows) + " |")
    lines.append("| intact: known races | " + " | ".join(str(len(row["known"])) for row in rows) + " |")
    lines.append("| CPU ms an iteration | " + " | ".join(str(row["milliseconds"]) for row in rows) + " |")
    lines += ["", *(f"- {row['release']}: {line}" for row in rows for line in row["alarms"])]
    return "\n".join(lines).rstrip() + "\n"


def waits_for(barrier: dict[str, int]) -> str:
    """Of the counts of a release's barrier, those after a verify, in words."""
    seen = {key.removeprefix("decode: "): count for key, count in barrier.items() if key.startswith("decode: ")}
    return "; ".join(f"{words} ({count})" for words, count in sorted(seen.items())) or "none"


def verdict(fence: dict) -> str:
    by_event = any(key.startswith("decode: the read-done event") for key in fence["barrier"])
    on_schedule_stream = any(pair["stream"] == "the schedule stream" for pair in fence["pairs"])
    elsewhere = len(fence["pairs"]) > on_schedule_stream
    if on_schedule_stream:
        said = "not covered" + (": the barrier's event comes ahead of the publish" if by_event else "")
    else:
        said = "the schedule stream is covered" + ("" if by_event else ": the barrier waits for the whole forward, publish included")
    return said + ("; the copy to the host is not: its own stream waits for the publish alone" if elsewhere else "")


def _cell(row: dict) -> str:
    return (row["by"] or "not caught") + (f" ({row['schedules']})" if row["by"] and row["schedules"] > 1 else "")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--releases", nargs="+", default=RELEASES)
    options.add_argument("--draw", action="store_true", help="only write again what scheduler_races.json holds")
    asked = options.parse_args()
    kept = MEASURED / "scheduler_races.json"
    if asked.draw:
        data = json.loads(kept.read_text(encoding="utf-8"))
    else:
        data = {"date": datetime.date.today().isoformat(), "releases": []}
        with tempfile.TemporaryDirectory() as artifacts:
            for release in asked.releases:
                data["releases"].append(run_release(release, release == asked.releases[-1], Path(artifacts)))
                print(json.dumps(data["releases"][-1]), flush=True)
        write_atomically(kept, json.dumps(data, indent=1) + "\n")
    write_atomically(MEASURED / "scheduler_races.md", to_markdown(data["releases"], data["date"]))
    print(MEASURED / "scheduler_races.md")


if __name__ == "__main__":
    main()
