"""pytest wiring: options, the SUT in the header and in every process, fixtures, and the verdict at the end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fixtures.artifacts import begin_run
from fixtures.fork_server import ForkServer, environment_of_runners
from fixtures.known import load_known
from fixtures.profiles import LEVELS, NIGHTLY_BUDGET, PROFILES, Profile, default_level, duration, fresh_seed, profile_of
from fixtures.sut import ROOT, Sut, SutError, locate

if TYPE_CHECKING:
    from fixtures.tally import Tally

# What needs torch is imported where it is used: a usage error is answered without it, at once.

A_DAY = 86_400.0
MOST_SCHEDULES = 10_000_000
DEADLINE = pytest.StashKey[float]()
NOT_STARTED = pytest.StashKey[bool]()
SEED = pytest.StashKey[int]()
SUT = pytest.StashKey[Sut]()
TALLY = pytest.StashKey["Tally"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("relay", "SGLang relay", after="_anonymous")  # in front of pytest's own in --help
    group.addoption("--sut", metavar="RELEASE|PATH", help="SGLang to test: a release, or a folder that contains sglang")
    group.addoption("--device", default="cpu", help="cpu (default), virtual, cuda or cuda:N")
    group.addoption("--profile", choices=sorted(PROFILES), default="quick", help="how much to run (of tox -e gate: gate, else quick)")
    group.addoption("--level", choices=sorted(LEVELS), help="SGLang's relay alone, its scheduler, or all (default: all for gate and nightly on a CPU, else relay)")
    group.addoption("--seed", type=int, help="seed of the schedules; the profile's own by default")
    group.addoption("--schedules", type=int, metavar="N", help="draw N schedules, not the profile's number; corpus and other suites have their own")
    group.addoption("--budget", type=duration, metavar="TIME", help="nightly: stop drawing after 30m, 8h, ...")
    group.addoption("--hang-limit", type=float, default=60.0, metavar="S", help="seconds one schedule may take (60)")
    group.addoption("--artifacts", metavar="DIR", help="where failures and the summary go (artifacts; of a replay artifacts/replay)")
    group.addoption("--stalls", type=int, metavar="PERCENT", help="iterations that hold a stream (25 on a GPU, else 0)")
    group.addoption("--replay", metavar="FILE", action="append", help="run the schedule in FILE and nothing else")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.artifacts is None:  # a replay leaves the report of the run that failed as it is
        config.option.artifacts = "artifacts/replay" if config.option.replay else "artifacts"
    try:
        config.stash[SUT] = locate(config.getoption("sut"))
    except SutError as error:
        raise pytest.UsageError(str(error)) from None
    _check_numbers(config)
    if not hasattr(config, "workerinput"):
        _check_artifacts(config)
    device = config.getoption("device")
    if not re.fullmatch(r"cpu|virtual|cuda(:\d+)?", device):
        raise pytest.UsageError(f"--device {device}: give cpu, virtual, cuda or cuda:N")
    config.option.level = config.option.level or default_level(config.getoption("profile"), device)
    if device.startswith("cuda"):
        import torch

        if not torch.cuda.is_available() or int(device.partition(":")[2] or 0) >= torch.cuda.device_count():
            raise pytest.UsageError(f"--device {device}: torch finds {torch.cuda.device_count()} CUDA devices here")
    for name in config.getoption("replay") or ():
        _check_replay(name)
    config.stash[SEED] = _seed(config)
    config.stash[DEADLINE] = _deadline(config)
    if not hasattr(config, "workerinput"):
        if not config.option.collectonly:
            if not _of_the_project(config):
                begin_run(_artifacts(config))
            if config.getoption("numprocesses", None) and not device.startswith("cuda"):
                # The workers share it, and it is ready when the first asks for a runner.
                with contextlib.suppress(OSError):
                    ForkServer.of(config.stash[SUT].layer, ROOT, environment_of_runners(ROOT))
        # A CI that stops a run gets the verdict so far, as with Ctrl-C.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        from reports.failed_checks import only_lines
        from reports.progress import Progress
        from reports.verdict import VerdictReporter

        in_lines = not _of_the_project(config) and only_lines(config)
        config.pluginmanager.register(VerdictReporter(config, config.stash[SUT], config.stash[SEED], in_lines), "relay-verdict")
        if config.pluginmanager.has_plugin("terminal"):
            config.pluginmanager.register(Progress(config), "relay-progress")


def pytest_keyboard_interrupt() -> None:
    """tox sends Ctrl-C on a second time: the verdict so far is still to be said. SIGTERM ends that as well."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _check_numbers(config: pytest.Config) -> None:
    if config.getoption("budget") and config.getoption("profile") != "nightly":
        raise pytest.UsageError("--budget: for --profile nightly alone; other profiles run a number of schedules, --schedules N")
    if (config.getoption("schedules") or 0) > MOST_SCHEDULES:
        raise pytest.UsageError(f"--schedules {config.getoption('schedules')}: give {MOST_SCHEDULES:,} or fewer")
    for name in ("schedules", "seed"):
        if (config.getoption(name) or 0) < 0:
            raise pytest.UsageError(f"--{name} {config.getoption(name)}: give 0 or more")
    if not 0 <= (config.getoption("stalls") or 0) <= 100:
        raise pytest.UsageError(f"--stalls {config.getoption('stalls')}: give a percentage, 0 to 100")
    if not 0 < config.getoption("hang_limit") <= A_DAY:
        raise pytest.UsageError(f"--hang-limit {config.getoption('hang_limit'):g}: give seconds, more than 0 and at most a day")


def _check_artifacts(config: pytest.Config) -> None:
    """A verdict that cannot be written would be lost after hours."""
    name, folder = config.getoption("artifacts"), _artifacts(config)
    try:
        if not name:
            raise pytest.UsageError("--artifacts: the value is empty; give a folder, or leave the option out")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"1")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise pytest.UsageError(f"--artifacts {name[:200]}: nothing can be written there ({reason})") from None


def _check_replay(name: str) -> None:
    from fixtures.schedule import ScheduleError, load

    if not name:
        raise pytest.UsageError("--replay: the value is empty; give a schedule's file")
    try:
        if not os.path.lexists(name):
            raise pytest.UsageError(f"--replay {name[:200]}: no such file")
        load(name)
    except ScheduleError as error:
        raise pytest.UsageError(f"--replay {error}") from None


def _profile(config: pytest.Config) -> Profile:
    return profile_of(config.getoption("profile"), config.getoption("device"))


def _seed(config: pytest.Config) -> int:
    """The seed asked for, the profile's, or a fresh one; workers take the controller's."""
    if hasattr(config, "workerinput"):
        return config.workerinput["relay_seed"]
    asked = config.getoption("seed")
    fixed = _profile(config).seed
    return asked if asked is not None else fixed if fixed is not None else fresh_seed()


def _deadline(config: pytest.Config) -> float:
    """When a nightly run takes no new schedules; never for other profiles."""
    if hasattr(config, "workerinput"):
        return config.workerinput["relay_deadline"]
    if config.getoption("profile") != "nightly":
        return float("inf")
    return time.time() + (config.getoption("budget") or NIGHTLY_BUDGET)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    """xdist: hand seed and deadline to a worker."""
    node.workerinput["relay_seed"] = node.config.stash[SEED]
    node.workerinput["relay_deadline"] = node.config.stash[DEADLINE]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--replay` runs its files and nothing else; without it there is nothing to replay."""
    wanted = bool(config.getoption("replay"))
    chosen = [item for item in items if ("replay" in item.keywords) == wanted]
    if wanted:
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def pytest_runtest_setup(item: pytest.Item) -> None:
    if NOT_STARTED in item.config.stash:
        pytest.skip("not run, since SGLang could not be started")
    if item.get_closest_marker("new_contract") and item.config.stash[SUT].contract == "verified_id":
        pytest.skip("states the new contract, and this SUT has the old one (verified_id)")
    if item.get_closest_marker("cuda") and not item.config.getoption("device").startswith("cuda"):
        pytest.skip("needs a GPU: --device cuda")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    report = yield
    if call.excinfo is not None and "fixtures.runner_process" in sys.modules:
        from fixtures.runner_process import NotStarted, RunnerFailed

        if call.excinfo.errisinstance(RunnerFailed):
            report.longrepr = report.relay_error = str(call.excinfo.value)
        if call.excinfo.errisinstance(NotStarted):
            item.config.stash[NOT_STARTED] = True
    if report.when == "call" and TALLY in item.stash:
        report.relay_tally = item.stash[TALLY].to_dict()
    return report


@pytest.fixture(scope="session")
def sut(pytestconfig: pytest.Config) -> Sut:
    """The SGLang under test."""
    return pytestconfig.stash[SUT]


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    return pytestconfig.stash[SEED]


@pytest.fixture(scope="session")
def levels(pytestconfig: pytest.Config) -> tuple[str, ...]:
    """The levels asked for."""
    return LEVELS[pytestconfig.getoption("level")]


@pytest.fixture(scope="session")
def explored(pytestconfig: pytest.Config) -> int:
    """How many schedules Hypothesis explores."""
    return _profile(pytestconfig).explored


@pytest.fixture(scope="session")
def stalls(pytestconfig: pytest.Config, device: str) -> int:
    """Percent of iterations that hold a stream; a CPU has no streams to hold."""
    asked = pytestconfig.getoption("stalls")
    return asked if asked is not None else 25 if device.startswith("cuda") else 0


@pytest.fixture(scope="session")
def time_left(pytestconfig: pytest.Config):
    """Whether the nightly budget still has time; always true without one."""
    deadline = pytestconfig.stash[DEADLINE]
    return lambda: time.time() < deadline


@pytest.fixture(scope="session")
def device(pytestconfig: pytest.Config) -> str:
    """Where tensors of this process go; the simulated device is in its runner alone."""
    asked = pytestconfig.getoption("device")
    return "cpu" if asked == "virtual" else worker_device(asked)


@pytest.fixture(scope="session")
def artifacts(pytestconfig: pytest.Config) -> Path:
    return _artifacts(pytestconfig)


@pytest.fixture(scope="session")
def known() -> list:
    """Reviewed findings in released versions of SGLang."""
    return load_known()


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Tally:
    """What this test ran; the verdict adds it up."""
    from fixtures.tally import Tally

    return request.node.stash.setdefault(TALLY, Tally())


def worker_device(device: str, rank: int = 0) -> str:
    """`cuda` spreads the xdist workers, and the ranks of each, over all visible devices; the others mean what they say."""
    if device != "cuda":
        return device
    import torch

    from fixtures.lane import gpu_of

    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return gpu_of(int(worker), rank, torch.cuda.device_count())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """`-n auto` on a GPU: up to sixteen processes for each device, no more than there are cores."""
    if not config.getoption("device").startswith("cuda"):
        return None
    import torch

    devices = 1 if ":" in config.getoption("device") else torch.cuda.device_count()
    return max(1, min(len(os.sched_getaffinity(0)), 16 * devices))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """Checks that need a special runner stay together; a nightly run draws from all kinds at once until its time is spent."""
    if config.getoption("dist") != "load" or config.getoption("profile") == "nightly" or _of_the_project(config):
        return None
    from fixtures.distribution import ByRunner

    return ByRunner(config, log)


def _of_the_project(config: pytest.Config) -> bool:
    """Whether the project's own tests run: they say nothing of a SUT, and leave what was found in one as it is."""
    return any("selftest" in argument for argument in config.args)


def _artifacts(config: pytest.Config) -> Path:
    return Path(config.rootpath, config.getoption("artifacts"))


def _runner(pytestconfig: pytest.Config, device: str = "", rank: int = 0, **kind: object):
    from fixtures.runner_process import RunnerProcess

    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    runner = RunnerProcess(
        sut=pytestconfig.stash[SUT],
        device=device or worker_device(pytestconfig.getoption("device"), rank),
        artifacts=_artifacts(pytestconfig),
        worker=worker + (f"-{device}" if device else ""),
        rank=rank,
        **kind,
        hang_limit=pytestconfig.getoption("hang_limit"),
    )
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def release_runner(pytestconfig: pytest.Config):
    """A process with the SUT as users run it."""
    yield from _runner(pytestconfig)


@pytest.fixture(scope="session")
def debug_runner(pytestconfig: pytest.Config):
    """A process with the SUT's debug assertions on."""
    yield from _runner(pytestconfig, debug=True)


@pytest.fixture(scope="session")
def kernel_runner(request: pytest.FixtureRequest, pytestconfig: pytest.Config, device: str, levels: tuple[str, ...]):
    """A process that launches the SUT's kernels: through Triton's interpreter on a CPU, where another one would take seconds to start."""
    if "scheduler" in levels:
        yield request.getfixturevalue("scheduler_kernel_runner")
    else:
        yield from _runner(pytestconfig, device, launches=True)


@pytest.fixture(scope="session")
def virtual_runner(pytestconfig: pytest.Config):
    """A process with the SUT on the simulated device, whatever the run's own device is."""
    yield from _runner(pytestconfig, "virtual")


@pytest.fixture(scope="session")
def sanitized_runner(pytestconfig: pytest.Config):
    """A process with the SUT under PyTorch's CUDA sanitizer."""
    yield from _runner(pytestconfig, sanitizer=True)


@pytest.fixture(scope="session")
def scheduler_other_rank_runner(pytestconfig: pytest.Config):
    """As `scheduler_release_runner`, another rank of tensor parallelism."""
    yield from _runner(pytestconfig, rank=1, level="scheduler")


@pytest.fixture(scope="session")
def scheduler_release_runner(pytestconfig: pytest.Config):
    """As `release_runner`, with SGLang's own scheduler."""
    yield from _runner(pytestconfig, level="scheduler")


@pytest.fixture(scope="session")
def scheduler_debug_runner(pytestconfig: pytest.Config):
    """As `debug_runner`, with SGLang's own scheduler."""
    yield from _runner(pytestconfig, debug=True, level="scheduler")


@pytest.fixture(scope="session")
def scheduler_virtual_runner(pytestconfig: pytest.Config):
    """As `virtual_runner`, with SGLang's own scheduler."""
    yield from _runner(pytestconfig, "virtual", level="scheduler")


@pytest.fixture(scope="session")
def scheduler_kernel_runner(pytestconfig: pytest.Config, device: str):
    """As `kernel_runner`, with SGLang's own scheduler and the Triton paths of its worker."""
    yield from _runner(pytestconfig, device, launches=True, level="scheduler")


@pytest.fixture
def runner_for(request: pytest.FixtureRequest):
    """The runner of a kind (`release`, `debug`, `kernel`, `virtual`; with the scheduler `other_rank`) at a level, started when needed."""

    def runner(kind: str, level: str = "relay"):
        return request.getfixturevalue(f"{kind}_runner" if level == "relay" else f"{level}_{kind}_runner")

    return runner
