"""The header of a run, and the one block at its end that says what came of it."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shlex
import textwrap
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from fixtures.artifacts import AT_SCHEDULER, kept_in_this_run, save_failure, suite_version, write_atomically
from fixtures.changed import changed_files, named
from fixtures.events import EVENTS, IMPOSSIBLE_PAIRS, WINDOW
from fixtures.judge import DIVERGED, RANKS, Divergence
from fixtures.printable import said
from fixtures.profiles import profile_of
from fixtures.sglang_relay.stand_ins import planned
from fixtures.sut import Sut
from fixtures.tally import Tally
from reports.failed_checks import broke_itself, first_line, write_failed_checks
from reports.left_out import fewer_schedules, left_out
from reports.page import write_page
from reports.summary import MEANINGS

LIVE_MINIMUM = 3
MOST_KINDS = 8
MOST_SHORT = 8
MOST_NAMED = 12
SUMMARY_VERSION = 1
WIDTH = 92
MOST_OF_A_REASON = 160


def machine(device: str) -> dict:
    """The facts of `reports.summary.Machine`."""
    gpu = ""
    if device.startswith("cuda"):
        import torch

        gpu = torch.cuda.get_device_name(torch.device(device))
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "triton": version("triton"),
        "gpu": gpu,
        "cores": len(os.sched_getaffinity(0)),
    }


def _in_brief(reason: str) -> str:
    """Its first sentence; `summary.json`, the page and `fixtures/known.json` have all of it."""
    first = reason.partition(". ")[0].rstrip(".")
    return textwrap.shorten(first, MOST_OF_A_REASON, placeholder=" ...")


def replayed_lines(runs: list[dict]) -> list[str]:
    """What came of each run of the schedules that were asked for by name, and what happened in it."""
    lines: list[str] = []
    for run in runs:
        name = f"schedule     {run['file']}: {run['requests']} request{'' if run['requests'] == 1 else 's'}"
        lines += [name] if name not in lines else []
        what = ", ".join(f"{event} {count:,}" for event, count in run["what"].items())
        seen = f"; {run['iterations']:,} iterations: {what}" if what else ""
        lines.append(f"             {run['mode']}: {run['verdict'] or 'no difference'}{seen}")
    return lines


class VerdictReporter:
    """Adds up what the tests report, prints the verdict, and writes `summary.json`. in_lines: what failed is said in a line each."""

    def __init__(self, config: pytest.Config, sut: Sut, seed: int, in_lines: bool = False) -> None:
        self.config, self.sut, self.seed, self.in_lines = config, sut, seed, in_lines
        self.changed = changed_files(sut)
        self.profile_name = config.getoption("profile")
        self.profile = profile_of(self.profile_name, config.getoption("device"))
        self.artifacts = Path(config.rootpath, config.getoption("artifacts"))
        self.total = Tally()
        self.passed = 0
        self.failed: list[str] = []
        self.errors: list[str] = []
        self.broken: set[str] = set()  # tests that ended in an error of this suite or its surroundings
        self.judged: set[str] = set()  # tests whose failures carry verdicts of their own
        self.lines: dict[str, str] = {}  # of each check that failed or could not be made
        self.reasons: dict[str, list[str]] = {}
        self.skipped: dict[str, int] = {}
        self.known: dict[str, str] = {}
        self.replayed: list[dict] = []  # each run of a schedule that was asked for by name
        self.interrupted = False
        self.unwritten: list[str] = []
        self.began, self.seconds = time.monotonic(), 0.0
        self._really_exit, self._process = os._exit, os.getpid()
        os._exit = self._exit  # whatever runs in this process, it does not end without a verdict

    def _exit(self, status: int) -> None:
        if os.getpid() == self._process:
            self.config.pluginmanager.getplugin("capturemanager").suspend_global_capture()
            writer = self.config.get_terminal_writer()
            writer.line("\nERROR: something ended this process before there was a verdict")
            writer.flush()
            status = status or pytest.ExitCode.TESTS_FAILED
        self._really_exit(status)

    def pytest_unconfigure(self) -> None:
        os._exit = self._really_exit

    def pytest_report_header(self) -> list[str]:
        sut, device = self.sut, self.config.getoption("device")
        lines = [
            f"relay suite {suite_version()}, profile {self.profile_name}, seed {self.seed}",
            f"SUT: {sut.title()}, contract {sut.contract}, relay files {sut.digest}",
            f"     {sut.root}" + (f" with {Path(sut.layer).name}" if sut.layer else ""),
            *self._changed("     changed from"),
            f"device: {device}; stood in for: {'; '.join(planned(device)) or 'nothing'}",
        ]
        return lines

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "selftest" in report.nodeid:
            return  # speaks of this suite, not of the SUT
        if hasattr(report, "relay_tally"):
            self.total.merge(report.relay_tally)
            self.judged.update([report.nodeid] if report.relay_tally["failures"] else [])
        if report.failed:
            self.lines[report.nodeid] = first_line(report)
        for name, value in report.user_properties if report.when == "call" else ():
            if name == "known":
                self.known[value[0]] = value[1]
            elif name == "replayed":
                self.replayed.append(value)
        if hasattr(report, "relay_error"):
            self.errors.append(report.nodeid)
            self.reasons.setdefault(report.relay_error, []).append(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed += 1
        elif report.when == "call" and report.failed:
            self.failed.append(report.nodeid)
            if broke_itself(report):
                self.broken.add(report.nodeid)
            else:
                self._keep(report)
        elif report.failed:
            self.errors.append(report.nodeid)
        elif report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            name = report.nodeid.split("::")[0].removeprefix("suites/").split("/")[0]
            self.skipped[f"{name}: {reason.removeprefix('Skipped: ')}"] = (
                self.skipped.get(f"{name}: {reason.removeprefix('Skipped: ')}", 0) + 1
            )

    def _keep(self, report: pytest.TestReport) -> None:
        """A failed check that no schedule and no launch was kept for, so that `tox -e reproduce` finds it."""
        suite = report.nodeid.removeprefix("suites/").split("/")[0]
        if suite in ("differential", "kernels") or any(name == "kept" for name, _ in report.user_properties):
            return
        found = Divergence(DIVERGED, report.nodeid.split("::")[-1], suite, -1, -1, -1, "the check passes", first_line(report))
        unmade = any("unmade" in failure for failure in getattr(report, "relay_tally", {"failures": []})["failures"])
        divergence = found.to_dict() | ({"unmade": True} if unmade else {})
        save_failure(self.artifacts, json.dumps({"check": report.nodeid}), divergence, self.sut.to_dict(), "release mode", "check.json")

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo) -> None:
        self.interrupted = True
        # CPython 3.11 may leave an entry without a line, on which pytest's own report of the interrupt fails.
        excinfo.traceback = excinfo.traceback.filter(lambda entry: entry._rawentry.tb_lineno is not None)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Iterator[None]:
        """The verdict comes last, below all that pytest and its plugins say."""
        if self._silent():
            return (yield)
        self._judge(session, exitstatus)
        if self.in_lines:
            self.config.option.tbstyle = "no"
        try:
            return (yield)
        finally:
            terminal = self.config.pluginmanager.getplugin("terminalreporter")
            if terminal is not None:
                self._say(terminal)

    def _judge(self, session: pytest.Session, exitstatus: int) -> None:
        self.seconds = time.monotonic() - self.began
        self.interrupted |= exitstatus == pytest.ExitCode.INTERRUPTED
        if self.interrupted:
            self._take_what_was_kept()
        if exitstatus == pytest.ExitCode.INTERNAL_ERROR:  # what had passed until then is no verdict
            self.errors.append("pytest")
            self.reasons["pytest broke off with an internal error, which it says above"] = ["pytest"]
        if exitstatus == pytest.ExitCode.OK and self.shortages():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        for name, write in (("summary.json", self._write_summary), ("report.html", lambda: write_page(self.artifacts))):
            try:
                write()
            except Exception as error:  # the verdict is said whatever cannot be written
                self.unwritten.append(f"{name}: {said(error).splitlines()[0][:300]}")
                if name == "summary.json":  # whoever gates on it would read an old one
                    session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def _take_what_was_kept(self) -> None:
        """Failures of checks that were stopped before they could tell."""
        told = {Path(failure["schedule"]).parent.name for failure in self.total.failures if "schedule" in failure}
        self.total.failures += [failure for failure in kept_in_this_run(self.artifacts) if Path(failure["schedule"]).parent.name not in told]

    def _write_summary(self) -> None:
        write_atomically(self.artifacts / "summary.json", json.dumps(self.summary(), indent=2))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.in_lines:
            write_failed_checks(terminalreporter, self.config, set(self._named()))

    def _say(self, terminalreporter: pytest.TerminalReporter) -> None:
        word = self.word()
        good = word in ("PASS", "known", "SKIPPED")
        terminalreporter.section("relay verdict", sep="=", bold=True)
        terminalreporter.write_line(self.headline(word), bold=True, green=good, red=not good)
        for line in self.block():
            terminalreporter.write_line(line)

    # -- what it says -------------------------------------------------------------------------------------

    def word(self) -> str:
        return "INTERRUPTED" if self.interrupted else self._seen() or self._clean()

    def _seen(self) -> str:
        """What the failures come to, "" without one."""
        verdicts = {failure["verdict"] for failure in self.total.failures}
        counted = {failure for failure in self.failed if "differential" not in failure and failure not in self.judged | self.broken}
        if "DIVERGED" in verdicts or counted:
            return "DIVERGED"
        if RANKS in verdicts:
            return RANKS
        if verdicts or self.errors or self.failed:
            return "ERROR"
        return ""

    def _clean(self) -> str:
        if self.shortages():
            return "INCOMPLETE"
        if not (self.passed or self.total.schedules):
            return "SKIPPED"
        return "known" if self.known else "PASS"

    def headline(self, word: str) -> str:
        so_far = f", so far {self._seen()}" if self.interrupted and self._seen() else ""
        partly = f", but this was not the full {self.profile_name} profile" if self.partial() and word in ("PASS", "known") else ""
        shown = "PASS (known)" if word == "known" else word
        return f"{shown}{so_far}: {MEANINGS[word]}{partly}: {self.sut.title()} ({self.sut.contract}, {self.config.getoption('device')})"

    def _changed(self, before: str) -> list[str]:
        return [f"{before} {self.sut.nearest_release()}: {named(self.changed)}"] if self.changed else []

    def block(self) -> list[str]:
        total = self.total
        lines = self._changed("changed      from") + (replayed_lines(self.replayed) if self.config.getoption("replay") else self._counts())
        lines += [f"skipped      {count} {reason}" for reason, count in sorted(self.skipped.items())]
        lines += [f"known        {name}: {_in_brief(reason)}" for name, reason in sorted(self.known.items())]
        lines += [f"not full     {line}" for line in self.partial()]
        short = self.shortages()
        lines += [f"incomplete   {line}" for line in short[:MOST_SHORT]]
        if len(short) > MOST_SHORT:
            lines.append(f"             and {len(short) - MOST_SHORT} more, in {self.artifacts / 'summary.json'}")
        lines += self._divergences()
        if sum(total.shares.values()):
            whole = sum(total.shares.values())
            parts = ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in total.shares.most_common())
            lines.append(f"time went to {parts}")
        lines += [f"not written  {line}" for line in self.unwritten]
        lines.append(f"artifacts    {self.artifacts}")
        return lines

    def _counts(self) -> list[str]:
        total = self.total
        modes = ", ".join(f"{count:,} {mode}" for mode, count in sorted(total.modes.items()))
        return [
            f"schedules    {total.schedules:,}   iterations {total.iterations:,}   seed {self.seed}   "
            f"{self.seconds:.0f} s",
            *([f"iterations   {modes}"] if modes else []),
            *(self._events() if total.schedules else []),
            f"checks       {self.passed:,} passed, {len(self.failed)} failed, {len(self.errors)} errors",
        ]

    def _events(self) -> list[str]:
        text = ", ".join(f"{name} {self.total.events[name]:,}" for name in EVENTS)
        counts = [self.total.pairs[f"{a}>{b}"] for a in EVENTS for b in EVENTS if (a, b) not in IMPOSSIBLE_PAIRS]
        reached = sum(1 for count in counts if count >= self.profile.pairs)
        return [
            f"events       {text}",
            f"pairs        {reached} of {len(counts)} ordered pairs within {WINDOW} iterations seen {self.profile.pairs} times "
            f"or more, the rarest {min(counts)}",
            f"at once      {self.total.median_live()} requests at the median",
        ]

    def _divergences(self) -> list[str]:
        lines = []
        kinds = self.total.kinds()
        for alike in kinds[:MOST_KINDS]:
            first = alike[0]
            lines.append(f"{first['verdict'].lower():12} {first['line']}")
            if len(alike) > 1:
                kept = sum("schedule" in failure for failure in alike)
                fewer = f", of which {kept:,} schedules were kept" if kept < len(alike) and "schedule" in first else ""
                lines.append(f"             the first of {len(alike):,} like it{fewer}")
            lines += [f"             {line}" for line in first["history"]] if self.replayed else []
            if "schedule" in first and self.replayed:
                lines.append(f"             minimize: tox -e minimize -- {first['schedule']}")
            elif "schedule" in first:
                level = " --level scheduler" if AT_SCHEDULER in first.get("mode", "") else ""
                lines.append(f"             replay: tox -e replay -- {first['schedule']}{self._same_sut()}{level}")
            if "log" in first:
                lines.append(f"             log: {first['log']}")
        if len(kinds) > MOST_KINDS:
            rest = sum(map(len, kinds[MOST_KINDS:]))
            lines.append(f"             and {rest:,} of {len(kinds) - MOST_KINDS} other kinds, in {self.artifacts / 'failures'}")
        if kinds and not self.replayed:
            where = self.config.getoption("artifacts")
            lines.append("reproduce    tox -e reproduce" + (f" -- {shlex.quote(where)}" if where != "artifacts" else ""))
        unmade = sorted({failure["unmade"] for failure in self.total.failures if "unmade" in failure})
        if unmade:
            lines.append(f"not made     checks whose schedules went wrong in another way: {', '.join(unmade)}")
        for reason, names in sorted(self.reasons.items()):
            lines.append(f"error        {reason}" + (f" ({len(names)} checks)" if len(names) > 1 else ""))
        lines += [f"failed       {name}: {self.lines[name]}" for name in self._named()]
        return lines

    def _named(self) -> list[str]:
        """The first of the failed checks that neither a verdict nor a reason speaks of."""
        told = self.judged.union(*self.reasons.values())
        return [name for name in self.failed + self.errors if name not in told and "test_streams" not in name][:MOST_NAMED]

    def _same_sut(self) -> str:
        """The options that a replay needs to run on the same SUT; the default one needs none."""
        chosen, device = self.config.getoption("sut"), self.config.getoption("device")
        return (f" --sut {shlex.quote(chosen)}" if chosen else "") + (f" --device {device}" if device != "cpu" else "")

    def partial(self) -> list[str]:
        return left_out(self.config, self.profile, self.changed)

    def shortages(self) -> list[str]:
        """Why a complete profile may not say PASS: what it did not exercise enough."""
        if not self.profile.complete or fewer_schedules(self.config, self.profile) or self.config.getoption("replay"):
            return []
        total, lines = self.total, []
        for name in EVENTS:
            if total.events[name] < self.profile.events:
                lines.append(f"{name} happened {total.events[name]} times, {self.profile.events} are wanted")
        for first in EVENTS:
            for second in EVENTS:
                count = total.pairs[f"{first}>{second}"]
                if count < self.profile.pairs and (first, second) not in IMPOSSIBLE_PAIRS:
                    lines.append(f"{first} then {second} happened {count} times, {self.profile.pairs} are wanted")
        for mode in ("overlap", "synchronous", "release mode", "debug assertions"):
            if total.modes[mode] < self.profile.events:
                lines.append(f"{total.modes[mode]} iterations ran in {mode}, {self.profile.events} are wanted")
        if len(set(total.shapes)) != len(total.shapes):
            lines.append(f"{len(total.shapes) - len(set(total.shapes))} schedules ran twice")
        if total.median_live() < LIVE_MINIMUM:
            lines.append(f"{total.median_live()} requests at once at the median, {LIVE_MINIMUM} are wanted")
        return lines

    def summary(self) -> dict:
        """The run as data; `reports/README.md` describes the fields."""
        total = self.total.to_dict()
        total.pop("shapes")
        return {
            "summary_version": SUMMARY_VERSION,
            "suite_version": suite_version(),
            "verdict": self.word(),
            "sut": self.sut.to_dict(),
            "changed": self.changed,
            "device": self.config.getoption("device"),
            "machine": machine(self.config.getoption("device")),
            "stood_in_for": planned(self.config.getoption("device")),
            "profile": self.profile_name,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "checks": {"passed": self.passed, "failed": self.failed, "errors": self.errors, "skipped": self.skipped},
            "known": self.known,
            "incomplete": self.shortages(),
            "partial": self.partial(),
            "median_requests": self.total.median_live(),
        } | total

    def _silent(self) -> bool:
        """Collecting only, or nothing ran: there is nothing to judge."""
        ran = self.passed or self.failed or self.errors or self.skipped or self.total.schedules
        return self.config.option.collectonly or not (ran or self.interrupted)
