"""A reproducer for every distinct divergence of a run, and its page.

    python -m reports.reproduce [DIR]
    python -m reports.reproduce --after-run WORDS...   the words are those that pytest was given
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from tqdm import tqdm

from fixtures.artifacts import LAST_RUN
from fixtures.judge import RANKS
from fixtures.kinds import kind_of
from fixtures.launch import Launch
from fixtures.runner_process import RunnerFailed, RunnerProcess, options_of
from fixtures.schedule import ScheduleError, load
from fixtures.sut import Sut, SutError, locate
from reports.check_reproducer import write_check_reproducer
from reports.checked_script import NOT_POSSIBLE, intact_release
from reports.launch_reproducer import write_launch_reproducer
from reports.minimize import SECONDS, DoesNotFail, minimize
from reports.page import write_page
from reports.reproducer import Reproducer, folder_name, key_of, story_of, story_of_smallest, write_reproducer
from reports.summary import SummaryError, read_summary
from reports.which_first import listed


class Reproducers:
    """Makes them one after the other, below `artifacts`; a failure that is known already makes none.

    sut: SGLang to use instead of the one that failed. seconds: to minimize each.
    """

    def __init__(self, artifacts: Path, sut: Sut | None, device: str, seconds: float) -> None:
        self.artifacts, self.sut, self.device, self.seconds = artifacts, sut, device, seconds
        self.folder = artifacts / "reproducers"
        self.known: set[tuple] = set()
        self.shown = False  # whether there is one
        self._runners: dict[str, RunnerProcess] = {}

    def make(self, file: Path, kept: dict) -> list[Reproducer]:
        """Of one failure that a run kept. Raises RunnerFailed, ScheduleError, SutError.

        What shows with SGLang's own scheduler is tried around its relay alone too, where the script is flat.
        """
        sut = self.sut or locate(kept["sut"]["root"])
        made = [KINDS[file.name](self, file, kept, sut)]
        alone = file.name == "schedule.json" and kept["divergence"].get("verdict") != RANKS
        if made[0] is not None and alone and options_of(kept["mode"]).get("level") == "scheduler":
            made.append(self.of_schedule(file, kept, sut, level="relay", launches=False))
        made = [one for one in made if one is not None]
        self.shown |= bool(made)
        return made

    def of_schedule(self, file: Path, kept: dict, sut: Sut, **changed: object) -> Reproducer | None:
        """changed: options of the runner, where another kind than the one that saw it is to show it."""
        options = options_of(kept["mode"]) | changed
        runner = self._runner(sut, **options)
        text = load(file).to_json()
        of_ranks = kept["divergence"].get("verdict") == RANKS
        story = kept if of_ranks else story_of(text, kept["divergence"], runner)
        if story["divergence"] is None or not self._is_new(key_of(story)):
            return None
        try:
            return self._smallest(text, key_of(story), runner, sut)
        except DoesNotFail:
            if of_ranks and not runner.on_gpu:
                raise RunnerFailed("with this schedule alone the ranks agree") from None
            if not runner.on_gpu:
                return None  # it goes wrong now and then, and another schedule may hold still
        simulated = self._runner(sut, **options | {"device": "virtual"})
        try:
            return self._smallest(text, key_of(story), simulated, sut)
        except DoesNotFail:
            return None

    def _smallest(self, text: str, key: tuple, runner: RunnerProcess, sut: Sut) -> Reproducer | None:
        """Raises DoesNotFail, RunnerFailed."""
        minimized = minimize(text, runner, self.seconds, other=self._beside(runner) if key[0] == RANKS else None)
        smallest = story_of_smallest(minimized, runner)
        if key_of(smallest) != key and not self._is_new(key_of(smallest)):
            return None  # made smaller, it is one that is known
        return write_reproducer(self.folder, minimized, smallest, runner, intact_release(sut, runner.level))

    def of_launch(self, file: Path, kept: dict, sut: Sut) -> Reproducer | None:
        if not self._is_new(kind_of(kept["divergence"])):
            return None
        runner = self._runner(sut, launches=True, **({"device": "cpu"} if self.device == "virtual" else {}))
        launch = Launch.from_json(file.read_text(encoding="utf-8"))
        failure = runner.job("launch", document=launch.to_json(), isolated=True)
        if failure is None:
            return None
        return write_launch_reproducer(self.folder, launch, failure, runner, intact_release(sut), self.seconds)

    def of_check(self, file: Path, kept: dict, sut: Sut) -> Reproducer | None:
        failure = kept["divergence"]
        if failure.get("unmade") and self.shown:
            return None  # what kept it from being made is told already
        if not self._is_new(kind_of(failure)):
            return None
        found = json.loads(file.read_text(encoding="utf-8"))
        folder = self.folder / folder_name((*kind_of(failure), "check"))
        return write_check_reproducer(folder, found, failure, sut, intact_release(sut), self.device)

    def close(self) -> None:
        for runner in self._runners.values():
            runner.close()

    def _is_new(self, key: tuple) -> bool:
        new = key not in self.known
        self.known.add(key)
        return new

    def _beside(self, runner: RunnerProcess) -> RunnerProcess:
        """The other rank of a runner."""
        return self._runners.setdefault(f"rank 1 beside {id(runner)}", runner.other_rank())

    def _runner(self, sut: Sut, **options: object) -> RunnerProcess:
        made = RunnerProcess(sut=sut, artifacts=self.artifacts, worker="reproducer", **{"device": self.device} | options)
        return self._runners.setdefault(f"{sut.root} {options}", made)


KINDS: dict[str, Callable[[Reproducers, Path, dict, Sut], Reproducer | None]] = {
    "schedule.json": Reproducers.of_schedule,
    "launch.json": Reproducers.of_launch,
    "check.json": Reproducers.of_check,
}


def reproduce_run(
    artifacts: Path, sut: Sut | None, device: str, seconds: float, refused: list | None = None, made: list | None = None
) -> list[Reproducer]:
    """A reproducer for every distinct divergence among the failures that a run left in `artifacts`.

    refused: takes what cannot be used, a ScheduleError or SutError each, after the others had their turn. made: takes what is made.
    """
    reproducers = Reproducers(artifacts, sut, device, seconds)
    made = [] if made is None else made
    try:
        for file, kept in tqdm(failures(artifacts), unit="failure", disable=None):
            try:
                found = reproducers.make(file, kept)
            except RunnerFailed as failed:  # the others are worth having all the same
                tqdm.write(f"{file.parent}: no reproducer ({failed})")
                continue
            except (ScheduleError, SutError) as error:
                if refused is None:
                    raise
                refused.append(error)
                continue
            made += found
            for one in found:
                tqdm.write(f"{one.failure['line']}\n  {one.folder}: reproduce.py {one.outcome.words()}")
    finally:
        reproducers.close()
    return made


def failures(artifacts: Path) -> list[tuple[Path, dict]]:
    """What the last run saved, the short ones of each kind first, with what it wrote about them."""
    found, earlier, last = [], 0, artifacts / LAST_RUN
    wanted = last.read_text(encoding="utf-8") if last.is_file() else ""
    for kind in KINDS:
        for file in (artifacts / "failures").glob(f"*/{kind}"):
            try:
                kept = json.loads(file.with_name("divergence.json").read_text(encoding="utf-8"))
                if not (kept["sut"]["root"] and kept["mode"] and kept["divergence"]):
                    raise ValueError("it does not say what failed, and on what")
            except (OSError, ValueError, KeyError, TypeError) as error:
                why = f"no {error}" if isinstance(error, KeyError) else error
                print(f"{file.parent}: passed over (divergence.json: {why})", file=sys.stderr)
                continue
            if wanted and kept.get("run") not in ("", None, wanted):
                earlier += 1
            else:
                found.append((list(KINDS).index(kind), file.stat().st_size, file, kept))
    if earlier:
        print(f"{artifacts / 'failures'}: {earlier} failures of earlier runs are left alone", file=sys.stderr)
    return [(file, kept) for _, _, file, kept in sorted(found, key=lambda one: one[:3])]


def main(words: list[str] | None = None) -> int:
    """Exit 0 when all failures were looked at, each without a reproducer named; 1 when a script could not run; 2 when something cannot be used."""
    parser = argparse.ArgumentParser(prog="python -m reports.reproduce", description=__doc__.splitlines()[0])
    parser.add_argument("artifacts", nargs="?", type=Path, default=Path("artifacts"), help="what the run left (artifacts)")
    parser.add_argument("--sut", metavar="RELEASE|PATH", help="SGLang to use instead of the one that failed")
    parser.add_argument("--device", help="cpu, virtual, cuda or cuda:N; by default the run's own; what failed on simulated streams runs there")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="N", help="time to minimize each (120)")
    words = sys.argv[1:] if words is None else words
    asked = _after_run(words[1:]) if words[:1] == ["--after-run"] else parser.parse_args(words)
    try:
        sut = locate(asked.sut) if asked.sut else None
        refused: list[Exception] = []
        made: list[Reproducer] = []
        stopped = False
        try:
            reproduce_run(asked.artifacts, sut, asked.device or _device_of(asked.artifacts), asked.seconds, refused, made)
        except KeyboardInterrupt:
            stopped = True
            _sweep(asked.artifacts / "reproducers")
            print("stopped; what follows was made before", file=sys.stderr)
        for error in refused:
            print(error, file=sys.stderr)
        if made or not refused:
            print(f"{len(made)} distinct divergence{'' if len(made) == 1 else 's'}; {write_page(asked.artifacts)}")
            print(*listed(made), sep="\n", end="\n" if made else "")
        if refused or stopped:
            return 2
    except (RunnerFailed, ScheduleError, SummaryError, SutError) as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if any(one.outcome.on_sut == NOT_POSSIBLE for one in made) else 0


def _sweep(folder: Path) -> None:
    """Take away what was being written."""
    for half in folder.iterdir() if folder.is_dir() else ():
        if half.is_dir() and not (half / "divergence.json").exists():
            shutil.rmtree(half, ignore_errors=True)


def _device_of(artifacts: Path) -> str:
    """Where the run was, as its summary says; a CPU where there is none."""
    try:
        return read_summary(artifacts / "summary.json").device
    except SummaryError:
        return "cpu"


def _after_run(words: list[str]) -> argparse.Namespace:
    """From the words that pytest was given: where it wrote, and on what device. Everything else was its own."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--artifacts", type=Path, default=Path("artifacts"))
    parser.add_argument("--device", default="cpu")
    asked, _ = parser.parse_known_args(words)
    return argparse.Namespace(artifacts=asked.artifacts, sut=None, device=asked.device, seconds=SECONDS)


if __name__ == "__main__":
    sys.exit(main())
