"""The same schedules give the same values on a CPU and on a GPU."""

from __future__ import annotations

import pytest

from fixtures.runner_process import RunnerProcess

SCHEDULES = 500


@pytest.mark.cuda
def test_cpu_and_gpu_agree(sut, artifacts, release_runner, seed: int) -> None:
    on_cpu = RunnerProcess(sut=sut, device="cpu", artifacts=artifacts, worker="beside")
    try:
        wanted = on_cpu.job("values", seed=seed, start=0, count=SCHEDULES)
    finally:
        on_cpu.close()
    seen = release_runner.job("values", seed=seed, start=0, count=SCHEDULES)
    different = [index for index, (a, b) in enumerate(zip(wanted, seen, strict=True)) if a != b]
    assert different == []
