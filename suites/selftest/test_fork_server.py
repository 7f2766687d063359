"""A forked runner lives and dies as a process of its own does: its status is told, and a server that died is replaced."""

from __future__ import annotations

import os
import signal

import pytest

from fixtures.fork_server import ForkServer
from fixtures.runner_process import RunnerProcess
from fixtures.sut import ROOT


@pytest.fixture
def runner(sut, tmp_path):
    made = RunnerProcess(sut, "cpu", tmp_path, worker="forked")
    yield made
    made.close()


def server(runner: RunnerProcess) -> ForkServer:
    return ForkServer.of(bool(runner.sut.layer), ROOT, dict(os.environ))


def test_a_killed_runner_is_named_with_its_status_and_the_next_job_has_a_new_one(runner) -> None:
    runner.start()
    child, pid = runner._child, runner._child.pid
    assert child.poll() is None
    child.kill()
    assert child.wait() == child.poll() == -signal.SIGKILL
    assert runner.seeded(1, 0, 1).schedules == 1
    assert runner._child.pid != pid


def test_a_server_that_died_takes_its_runners_along_and_is_replaced(runner) -> None:
    runner.start()
    died = server(runner)
    died.process.kill()
    assert runner._child.wait(timeout=60) == -signal.SIGKILL
    assert runner.seeded(1, 0, 1).schedules == 1
    assert server(runner) is not died


def test_each_runner_has_an_environment_and_a_session_of_its_own(runner, sut, tmp_path) -> None:
    """SGLang's debug assertions are read from the environment, and a Ctrl-C must not reach a runner."""
    debug = RunnerProcess(sut, "cpu", tmp_path, worker="forked", debug=True)
    for one in (runner, debug, runner):
        one.start()  # raises where the assertions are not as asked
        assert os.getsid(one._child.pid) == one._child.pid
    debug.close()
