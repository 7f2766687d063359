"""Schedules tried one after the other on one SUT, whatever they do to its process."""

from __future__ import annotations

import time

from fixtures.runner_process import RunnerFailed, RunnerProcess

ISOLATED_LIMIT = 10.0  # seconds for one schedule while it is not known how long one takes


class Trials:
    """Runs schedules on one SUT, in forks once a schedule has killed or hung it.

    Called with a schedule's text; gives its failure, or None.
    """

    def __init__(self, runner: RunnerProcess) -> None:
        self.runner = runner
        self.can_fork = runner.device == "cpu"
        self.isolated = True  # until the first one has come back
        self.slowest = 0.0

    def __call__(self, text: str) -> dict | None:
        if not self.can_fork:
            return next(iter(self.runner.schedule(text, save=False).failures), None)
        begin = time.monotonic()
        try:
            failure = self._candidate(text)
        except RunnerFailed:
            self.isolated = True
            failure = self._candidate(text)
        if failure is None or failure["field"] != "process":
            self.slowest = max(self.slowest, time.monotonic() - begin)
        return failure

    def first(self, text: str) -> dict | None:
        failure = self(text)
        self.isolated = failure is not None and failure["field"] == "process"
        return failure

    def _candidate(self, text: str) -> dict | None:
        limit = max(1.0, 20 * self.slowest) if self.slowest else ISOLATED_LIMIT
        return self.runner.job("candidate", document=text, isolated=self.isolated, limit=min(limit, ISOLATED_LIMIT))
