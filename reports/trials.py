"""Schedules tried one after the other on one SUT, whatever they do to its process."""

from __future__ import annotations

from fixtures.ranks import disagreement
from fixtures.runner_process import NotStarted, RunnerFailed, RunnerProcess

TRIES = 3


class Trials:
    """Runs schedules on one SUT: gives the failure of a schedule's text, or None.

    Each runs in a fork of the runner once one has killed or hung it, and until the first has come back.
    """

    def __init__(self, runner: RunnerProcess) -> None:
        self.runner = runner
        self.isolated = True

    def __call__(self, text: str) -> dict | None:
        if self.runner.on_gpu:  # no fork has a CUDA context, and what races does not always lose
            tries = (self.runner.schedule(text, save=False).failures for _ in range(TRIES))
            return next((failures[0] for failures in tries if failures), None)
        try:
            return self.runner.job("candidate", document=text, isolated=self.isolated)
        except RunnerFailed:
            self.isolated = True
            return self.runner.job("candidate", document=text, isolated=True)

    def first(self, text: str) -> dict | None:
        failure = self(text)
        self.isolated = failure is not None and failure["field"] == "process"
        return failure


class RankTrials:
    """Runs schedules on ranks 0 and 1 of one SUT: gives the first difference between the two, or None.

    What kills or hangs a rank is no such difference; from then on each runs in a fork.
    """

    def __init__(self, zero: RunnerProcess, one: RunnerProcess) -> None:
        self.ranks, self.isolated = (zero, one), False

    def __call__(self, text: str) -> dict | None:
        try:
            return self.first(text)
        except NotStarted:
            raise
        except RunnerFailed:
            self.isolated = not self.ranks[0].on_gpu
            return None

    def first(self, text: str) -> dict | None:
        """Raises RunnerFailed where the schedule kills or hangs a rank."""
        for _ in range(TRIES if self.ranks[0].on_gpu else 1):
            seen = [rank.job("seen", document=text, isolated=self.isolated) for rank in self.ranks]
            found = disagreement(*seen)
            if found is not None:
                return found.to_dict()
        return None
