"""A forked runner lives and dies as a process of its own does; one server is for all processes of a run, and is replaced when it dies."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.fork_server import MEETING_PLACE, ForkServer
from fixtures.runner_process import RunnerProcess
from fixtures.sut import ROOT

STARTS_A_RUNNER = """
import sys
from pathlib import Path
from fixtures.runner_process import RunnerProcess
from fixtures.sut import locate
runner = RunnerProcess(locate(sys.argv[1]), "cpu", Path(sys.argv[2]), worker="elsewhere")
runner.start()
print(runner._child.pid, flush=True)
sys.stdin.read()
runner.close()
"""


@pytest.fixture(scope="module", autouse=True)
def of_our_own(tmp_path_factory):
    """A server that no other tests are connected to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForkServer, "_of", {})
        patch.setenv(MEETING_PLACE, str(tmp_path_factory.mktemp("as-deep-as-a-socket-cannot-lie-" * 4)))
        yield


@pytest.fixture
def runner(sut, tmp_path):
    made = RunnerProcess(sut, "cpu", tmp_path, worker="forked")
    yield made
    made.close()


@pytest.fixture
def elsewhere(sut, tmp_path):
    """Another process with a runner of its own, and the runner's number."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTS_A_RUNNER, sut.root, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    with process:
        yield process, int(process.stdout.readline())
        process.kill()


def ends(process: int) -> bool:
    """Whether the process behind a handle ends within a minute."""
    return bool(select.select([process], [], [], 60)[0])


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


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
    died = parent_of(runner._child.pid)
    os.kill(died, signal.SIGKILL)
    assert runner._child.wait(timeout=60) == -signal.SIGKILL
    assert runner.seeded(1, 0, 1).schedules == 1
    assert parent_of(runner._child.pid) not in (died, os.getpid())


@pytest.mark.parametrize("moment", ["importing", "ready", "begin"])
def test_a_job_whose_server_is_killed_is_run_again_and_nobody_is_blamed(runner, moment: str, monkeypatch) -> None:
    """While its runner imports SGLang, before it has a job, and while it runs schedules."""
    killed = []

    def kill_at(now: str) -> None:
        if now == moment and not killed:
            killed.append(parent_of(runner._child.pid))
            os.kill(killed[0], signal.SIGKILL)

    send, following = runner._send, runner._next

    def sent(message: dict) -> None:
        send(message)
        kill_at("importing" if "sut" in message else "")

    def answered(limit: float) -> dict:
        answer = following(limit)
        kill_at(answer["kind"])
        return answer

    monkeypatch.setattr(runner, "_send", sent)
    monkeypatch.setattr(runner, "_next", answered)
    found = runner.seeded(1, 0, 6)
    assert (found.schedules, found.failures, runner.deaths) == (6, [], 0)
    assert parent_of(runner._child.pid) not in killed


def test_the_server_sees_no_gpu_whoever_started_it(sut, tmp_path, monkeypatch) -> None:
    """What it preloads looks for a device, and torch remembers what was found: a runner on a CPU would take CUDA branches."""
    monkeypatch.setattr(ForkServer, "_of", {})
    monkeypatch.setenv(MEETING_PLACE, str(tmp_path / "meeting"))
    server = ForkServer.of(sut.layer, ROOT, dict(os.environ) | {"CUDA_VISIBLE_DEVICES": "0"})
    child = server.start({}, tmp_path / "log", 60)
    environment = Path(f"/proc/{parent_of(child.pid)}/environ").read_bytes().split(b"\0")
    child.kill()
    server.here.close()
    assert b"CUDA_VISIBLE_DEVICES=" in environment


def test_processes_of_a_run_share_a_server_and_what_one_leaves_behind_is_ended(runner, elsewhere) -> None:
    runner.start()
    process, pid = elsewhere
    server = parent_of(pid)
    assert parent_of(runner._child.pid) == server
    left_behind = os.pidfd_open(pid)
    process.kill()
    assert ends(left_behind)
    assert runner.seeded(1, 0, 1).schedules == 1
    assert parent_of(runner._child.pid) == server


def test_a_server_ends_with_the_last_process_that_needs_it(runner) -> None:
    runner.start()
    server = os.pidfd_open(parent_of(runner._child.pid))
    runner.close()
    for connection in ForkServer._of.values():
        connection.here.close()
    assert ends(server)
    assert runner.seeded(1, 0, 1).schedules == 1


def test_each_runner_has_an_environment_and_a_session_of_its_own(runner, sut, tmp_path) -> None:
    """SGLang's debug assertions are read from the environment, and a Ctrl-C must not reach a runner."""
    debug = RunnerProcess(sut, "cpu", tmp_path, worker="forked", debug=True)
    for one in (runner, debug, runner):
        one.start()  # raises where the assertions are not as asked
        assert os.getsid(one._child.pid) == one._child.pid
    debug.close()
