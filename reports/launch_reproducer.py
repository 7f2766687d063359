"""A reproducer of a kernel that differs from the oracle: the smallest launch found, with its tensors."""

from __future__ import annotations

from pathlib import Path

from fixtures.artifacts import suite_version, write_atomically
from fixtures.kinds import kind_of
from fixtures.launch import MODE, Launch
from fixtures.runner_process import RunnerProcess
from fixtures.sut import Sut
from reports.checked_script import Checker, Outcome, how_to_run, name_of_intact
from reports.launch_reduction import reduce_launch
from reports.launch_script import can_be_flat, launch_script
from reports.reproducer import Reproducer, folder_name, write_facts
from reports.script_parts import CODES, in_a_docstring

REPLAY = '''"""{title}

This makes the launch in launch.json through the differential-testing suite, whose folder it takes as its argument:
    python reproduce.py FOLDER-OF-THE-SUITE
No flat script is honest here: it takes watched memory around what the kernel allocates.
{codes}
"""
import os
{interpreted}import pathlib
import sys
import traceback
try:
    sys.path.append(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("RELAY_SUITE", "."))
    import sglang
    from fixtures.launch import Launch, difference
    print("SGLang", sglang.__version__, "from", sglang.__file__)
    found = difference(Launch.from_json(pathlib.Path(__file__).with_name("launch.json").read_text()), {device!r})
except BaseException:
    traceback.print_exc()
    sys.exit(2)
assert found is None, found.line()
'''


def write_launch_reproducer(
    folder: Path, launch: Launch, failure: dict, runner: RunnerProcess, intact: Sut | None, seconds: float
) -> Reproducer:
    """Make the launch small and write its folder, below `folder`. Raises RunnerFailed."""
    launch, failure, complete = reduce_launch(
        launch, failure, lambda one: runner.job("launch", document=one.to_json(), isolated=True), seconds
    )
    key = (*kind_of(failure), "launch")
    here = folder / folder_name(key)
    write_atomically(here / "launch.json", launch.to_json() + "\n")
    said = "the launch kills or hangs its process" if failure["field"] == "process" else _difference(failure)
    title = f"{runner.sut.title()}, kernel {launch.kernel}: {said}"
    flat = can_be_flat(launch, failure)
    if flat:
        text = launch_script(launch, failure, title, runner.job("home_of", kernel=launch.kernel), runner.device)
    else:
        interpreted = 'os.environ["TRITON_INTERPRET"] = "1"\n' if runner.device == "cpu" else ""
        text = REPLAY.format(title=in_a_docstring(title), device=runner.device, interpreted=interpreted, codes=CODES)
    outcome = Checker(here / "reproduce.py", runner.sut, intact)(text)
    write_atomically(here / "README.md", _readme(launch, failure, title, runner, flat, complete, outcome, intact))
    write_facts(here, runner.sut, MODE, failure, key, complete, outcome)
    return Reproducer(here, failure, 0, flat, text.count("\n"), outcome, key)


def _difference(failure: dict) -> str:
    return f"{failure['field']}: expected {failure['expected']}, got {failure['actual']}"


def _readme(
    launch: Launch, failure: dict, title: str, runner: RunnerProcess, flat: bool, complete: bool, outcome: Outcome, intact: Sut | None
) -> str:
    inputs = [
        f"`{name}` {'absent' if held is None else f'{list(held.shape)} {held.buffer.dtype}'.replace('torch.', '')}"
        for name, held in launch.inputs.items()
    ]
    run = "needs torch and SGLang only" if flat else "takes this suite's folder as its argument and makes the launch in `launch.json`"
    how = "interpreted by Triton on a CPU" if runner.device == "cpu" else runner.identity.get("device", runner.device)
    size = "the smallest found; nothing in it can be left out or lowered" if complete else "perhaps not the smallest, its time was over"
    return "\n".join(
        [
            f"# {title}",
            "",
            f"**What differs.** A launch of `{launch.kernel}`, {launch.requests()} request(s), {how}. {_difference(failure)}.",
            "",
            f"**The launch** ({size}): {', '.join(inputs)}.",
            "",
            f"**How to run.** `reproduce.py` {run}: {how_to_run(runner.sut)}. It exits 1 on a build with "
            "the fault, 0 on a right one, 2 when it could not run.",
            "",
            f"**Checked.** `reproduce.py` {outcome.words(name_of_intact(intact, runner.sut))}.",
            "",
            "| | |",
            "| --- | --- |",
            f"| SGLang | {runner.sut.title()}, contract `{runner.sut.contract}`, relay files `{runner.sut.digest}` |",
            f"| torch | {runner.identity.get('torch', 'unknown')} |",
            f"| suite | {suite_version()} |",
            "",
        ]
    )
