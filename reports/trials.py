"""Schedules tried one after the other on one SUT, whatever they do to its process."""

from __future__ import annotations

from fixtures.runner_process import RunnerFailed, RunnerProcess


class Trials:
    """Runs schedules on one SUT: gives the failure of a schedule's text, or None.

    Each runs in a fork of the runner once one has killed or hung it, and until the first has come back.
    """

    def __init__(self, runner: RunnerProcess) -> None:
        self.runner = runner
        self.can_fork = runner.device in ("cpu", "virtual")
        self.isolated = True

    def __call__(self, text: str) -> dict | None:
        if not self.can_fork:
            return next(iter(self.runner.schedule(text, save=False).failures), None)
        try:
            return self.runner.job("candidate", document=text, isolated=self.isolated)
        except RunnerFailed:
            self.isolated = True
            return self.runner.job("candidate", document=text, isolated=True)

    def first(self, text: str) -> dict | None:
        failure = self(text)
        self.isolated = failure is not None and failure["field"] == "process"
        return failure
