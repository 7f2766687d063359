"""A bar while a run works: tests done, schedules and failures so far."""

from __future__ import annotations

import sys

import pytest
from tqdm import tqdm


class Progress:
    """A tqdm bar on a terminal, a line for each tenth elsewhere; silent with -v, where pytest names every test."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.bar: tqdm | None = None
        self.total = self.done = self.schedules = self.failed = self.tenth = 0
        self.on_terminal = sys.stderr.isatty()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if session.items:
            self._begin(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids) -> None:
        self._begin(len(ids))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed += report.failed
        self.schedules += getattr(report, "relay_tally", {}).get("schedules", 0)
        if report.when != "teardown":
            return
        self.done += 1
        if self.bar is not None:
            self.bar.set_postfix_str(self._text(), refresh=False)
            self.bar.update()
        elif not self.on_terminal and self.total and self.done * 10 // self.total > self.tenth and not self._verbose():
            self.tenth = self.done * 10 // self.total
            print(f"[{self.tenth * 10:3d}%] {self.done} of {self.total} checks, {self._text()}", file=sys.stderr, flush=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport):
        """No dots between the updates."""
        if not self._verbose() and report.passed and report.when == "call":
            return "passed", "", "PASSED"
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        if self.bar is not None:
            self.bar.close()

    def _begin(self, total: int) -> None:
        if self.total or self.config.option.collectonly:
            return
        self.total = total
        if self.on_terminal and not self._verbose():
            self.bar = tqdm(total=total, unit="check", dynamic_ncols=True, leave=True)

    def _text(self) -> str:
        return f"{self.schedules:,} schedules, {self.failed} failed"

    def _verbose(self) -> bool:
        return self.config.option.verbose > 0
