"""Make a failing schedule small: 1-minimal, with the same kind of failure.

1-minimal: no single request, iteration, event, stall or flag can be taken out, and no number lowered to 0, to
1, to its half or by one, without the failure going away or becoming another kind.

    python -m reports.minimize FILE [--sut RELEASE|PATH] [--seconds N] [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fixtures.schedule import ScheduleError, load
from reports.holding import held_longer
from reports.reduction import Document, Search, Stopped, spelled_out, text_of, to_a_fixpoint

if TYPE_CHECKING:
    from fixtures.runner_process import RunnerProcess

SECONDS = 120.0


class DoesNotFail(Exception):
    """Nothing goes wrong with the schedule on this SUT."""


@dataclass
class Minimized:
    """text: the schedule. failure: what it shows. before: the size of the one it was made from.

    complete: whether it is 1-minimal; else `stopped` says why not.
    """

    text: str
    failure: dict
    before: tuple[int, int]
    tried: int
    seconds: float
    complete: bool
    stopped: str = ""

    def size(self) -> tuple[int, int]:
        """Requests, and iterations up to the divergence: 0 where the run as a whole shows it."""
        return _size(spelled_out(self.text), self.failure)

    def came_from(self) -> str:
        """`before` in words, without iterations where the run as a whole showed it."""
        requests, iterations = self.before
        return counted(requests, "request") + (f" x {counted(iterations, 'iteration')}" if iterations else "")


def _size(document: Document, failure: dict) -> tuple[int, int]:
    return len(document["requests"]), failure["iteration"] + 1


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def minimize(
    text: str,
    runner: RunnerProcess,
    seconds: float = SECONDS,
    progress: Callable[[Search], None] = lambda search: None,
    other: RunnerProcess | None = None,
) -> Minimized:
    """The smallest schedule found that fails as `text` does; on Ctrl-C or when `seconds` are over, the best so far.

    other: another rank, where the failure is what the two do differently.
    On a GPU a schedule that does not fail alone is tried with its streams held longer.
    Raises ScheduleError for a text that is no schedule, DoesNotFail, RunnerFailed.
    """
    from reports.trials import RankTrials, Trials  # it starts processes and needs torch; a bad file is refused without

    document = spelled_out(text)
    ranks = [runner] if other is None else [runner, other]
    for rank in ranks:
        rank.start()
    begin = time.monotonic()
    trials = Trials(runner) if other is None else RankTrials(*ranks)
    failure = trials.first(text_of(document))
    if failure is None and runner.on_gpu:
        for document in held_longer(document):
            failure = trials.first(text_of(document))
            if failure is not None:
                break
    if failure is None:
        raise DoesNotFail("nothing goes wrong with this schedule on this SUT")
    search, before = Search(document, failure, trials, begin + seconds, progress), _size(document, failure)
    stopped = ""
    try:
        to_a_fixpoint(search)
    except Stopped:
        stopped = f"its {seconds:g} s were over"
    except KeyboardInterrupt:
        stopped = "it was interrupted"
        for rank in ranks:
            rank.close()  # its answer is still on the way, and must not be taken for the next one's
    spent = time.monotonic() - begin
    return Minimized(text_of(search.best), search.failure, before, search.tried, spent, not stopped, stopped)


def main(words: list[str] | None = None) -> int:
    """Exit 0 when a reproducer was written, 1 when nothing goes wrong here, 2 for a file or SUT that cannot be used."""
    asked = _arguments(words)
    try:
        text = load(asked.file).to_json()
    except ScheduleError as error:
        print(error, file=sys.stderr)
        return 2
    from fixtures.judge import RANKS
    from fixtures.runner_process import RunnerFailed, RunnerProcess, options_of
    from fixtures.sut import SutError, locate
    from reports.checked_script import intact_release
    from reports.reproducer import story_of_smallest, write_reproducer

    kept = _kept_beside(asked.file)
    wanted = asked.sut or kept.get("sut", {}).get("root")
    try:
        sut = locate(wanted)
    except SutError as error:
        print(error, file=sys.stderr)
        return 2
    options = {"device": "cpu"} | options_of(kept.get("mode", ""))
    options |= {"debug": asked.mode == "debug"} if asked.mode else {}
    options |= {"level": asked.level} if asked.level else {}
    options |= {"device": asked.device} if asked.device else {}
    runner = RunnerProcess(sut=sut, artifacts=asked.out, worker="minimize", **options)
    print(f"SUT: {sut.title()}, {sut.root}, {runner.mode()}, {runner.device}", file=sys.stderr)
    try:
        minimized = _smallest(text, runner, asked.seconds, kept.get("divergence", {}).get("verdict") == RANKS)
        made = write_reproducer(asked.out / "reproducers", minimized, story_of_smallest(minimized, runner), runner, intact_release(sut, runner.level))
    except DoesNotFail as error:
        print(f"{asked.file}: {error}; it failed elsewhere? give --sut, --mode, --level or --device", file=sys.stderr)
        return 1
    except RunnerFailed as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        runner.close()
    print(made.failure["line"])
    size = f"from {minimized.came_from()} to {minimized.size()[0]} x {made.iterations}"
    print(f"{size}, {minimized.tried} schedules tried in {minimized.seconds:.1f} s")
    if not minimized.complete:
        print(f"perhaps not the smallest: {minimized.stopped}")
    print(f"reproduce.py: {'flat' if made.flat else 'replays through the suite'}, {made.outcome.words()}")
    print(made.folder)
    return 0


def _smallest(text: str, runner: RunnerProcess, seconds: float, of_ranks: bool) -> Minimized:
    """of_ranks: it was two ranks that showed it. Where nothing goes wrong on one, SGLang's scheduler is tried on two as well."""
    at_scheduler = runner.level == "scheduler"
    if not (of_ranks and at_scheduler):
        try:
            with _Bar() as bar:
                return minimize(text, runner, seconds, bar)
        except DoesNotFail:
            if not at_scheduler:
                raise
    other = runner.other_rank()
    try:
        with _Bar() as bar:
            return minimize(text, runner, seconds, bar, other)
    finally:
        other.close()


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m reports.minimize", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="a failing schedule; divergence.json beside it names its SUT and mode")
    parser.add_argument("--sut", metavar="RELEASE|PATH", help="SGLang it fails on; by default the one it failed on, or the pinned one")
    parser.add_argument("--mode", choices=("release", "debug"), help="without or with SGLang's debug assertions")
    parser.add_argument("--level", choices=("relay", "scheduler"), help="what of SGLang runs it; by default what it failed on, or the relay")
    parser.add_argument("--device", help="cpu, virtual, cuda or cuda:N; by default the one it failed on, or cpu")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="N", help="stop after N seconds with the best so far (120)")
    parser.add_argument("--out", type=Path, default=Path("artifacts"), metavar="DIR", help="where `reproducers/` goes (artifacts)")
    return parser.parse_args(words)


def _kept_beside(file: Path) -> dict:
    """What the run that found the failure wrote about it, or nothing."""
    try:
        kept = json.loads(file.with_name("divergence.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    sut = kept.get("sut") if isinstance(kept, dict) else None
    known = isinstance(sut, dict) and isinstance(sut.get("root"), str) and Path(sut["root"], "sglang").is_dir()
    return kept if known else {}


class _Bar:
    """Schedules tried and the size of the best, on a terminal and in a log."""

    def __enter__(self) -> _Bar:
        from tqdm import tqdm

        self.bar = tqdm(unit=" schedules", dynamic_ncols=True, mininterval=0.5 if sys.stderr.isatty() else 10)
        return self

    def __call__(self, search: Search) -> None:
        self.bar.set_postfix_str(f"best: {len(search.requests())} requests, {len(search.iterations())} iterations with a choice", refresh=False)
        self.bar.update()

    def __exit__(self, *error: object) -> None:
        self.bar.close()


if __name__ == "__main__":
    sys.exit(main())
