"""Launches that a runner makes, compared with the oracle and kept when they differ; inputs in every layout that SGLang's callers hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fixtures.artifacts import save_failure
from fixtures.launch import MODE, Held, Launch, Layout, lost_launch
from fixtures.runner_process import NotStarted, RunnerFailed, RunnerProcess
from fixtures.sut import Sut
from fixtures.tally import Tally


@pytest.fixture
def launch(kernel_runner: RunnerProcess, sut: Sut, artifacts: Path, tally: Tally) -> Callable[..., Launch]:
    """Makes a launch; fails when it differs from the oracle, after keeping it for `tox -e reproduce`."""

    def launch(
        kernel: str, inputs: dict[str, torch.Tensor | None], outputs: dict[str, Layout], refuses: str = "", **scalars: int
    ) -> Launch:
        made = Launch(kernel, {name: t if t is None else Held.of(t) for name, t in inputs.items()}, outputs, scalars, refuses)
        document = made.to_json()
        try:
            # Forks cost as much as the launches, so they begin with the first launch that kills the runner.
            found = kernel_runner.job("launch", document=document, isolated=kernel_runner.deaths > 0)
        except NotStarted:
            raise
        except RunnerFailed as death:
            found = lost_launch(made, str(death)).to_dict()
        if found is not None:
            path = save_failure(artifacts, document, found, sut.to_dict(), MODE, "launch.json")
            tally.failures.append(found | {"mode": MODE, "launch": str(path)})
            pytest.fail(f"{found['line']}; the launch is in {path}", pytrace=False)
        return made

    return launch


def _front(values: torch.Tensor) -> torch.Tensor:
    buffer = values.new_zeros(len(values) + 5)
    buffer[: len(values)] = values
    return buffer[: len(values)]


def _behind_another(values: torch.Tensor) -> torch.Tensor:
    buffer = values.new_zeros(len(values) + 1)
    buffer[1:] = values
    return buffer[1:]


def _column(values: torch.Tensor) -> torch.Tensor:
    buffer = values.new_zeros(len(values), 3)
    buffer[:, 1] = values
    return buffer[:, 1]


LAYOUTS = {
    "gathered": torch.clone,
    "front of a buffer": _front,
    "one element into a buffer": _behind_another,
    "column": _column,
}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> Callable[[torch.Tensor], torch.Tensor]:
    """Makes a 1-D tensor a view with the same values; what surrounds them is 0."""
    return LAYOUTS[request.param]
