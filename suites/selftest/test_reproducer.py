"""A reproducer runs without this suite, tells a broken build from a right one, and is fit to be read by a stranger."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fixtures.artifacts import LAST_RUN, RUN, begin_run, mode_name, save_failure
from fixtures.broken_copy import Edit, broken_copy
from fixtures.broken_relays import BROKEN_RELAYS, RELEASE
from fixtures.corpus import load_corpus
from fixtures.draw import seeded
from fixtures.lane import Lane
from fixtures.oracle_system import OLD, OracleSystem
from fixtures.plan import Plan
from fixtures.schedule import load, parse
from fixtures.sglang_relay.bonus_tokens import BonusTokensRelay
from fixtures.story import BUFFERS, _first_wrong_row
from fixtures.sut import OVERLAP_UTILS, Sut, SutError, locate
from fixtures.tape import RecordedLoop, RelayedOracle, play, shorten
from reports import reproduce
from reports.checked_script import NOT_RUN, Checker, how_to_run
from reports.flat_script import NotFlat, flat_script
from reports.replay_script import replay_script
from reports.reproduce import failures, main, reproduce_run
from reports.reproducer import key_of

MOST_LINES = 60
NEW = BonusTokensRelay.contract
FUNCTIONS = {
    "eager_accept": ["sglang.srt.speculative.dflash_utils", "accept"],
    "commit_accept": ["sglang.srt.speculative.dflash_worker_v2", "_commit_accept"],
    "prepare_block": ["sglang.kernels.ops.speculative.dflash", "_prepare"],
    "accept_bonus": ["sglang.kernels.ops.speculative.dflash", "_accept"],
}
DIALECTS = {
    "bonus_tokens": {
        "contract": "bonus_tokens",
        "bonus": "bonus_tokens",
        "bonus_dtype": "int64",
        "host_lists": ["nxt_kv_lens_cpu"],
        "host_sums": ["nxt_kv_lens_sum"],
        "filter_flags": {},
        "filter_takes_host": True,
        "functions": FUNCTIONS,
    },
    "verified_id": {
        "contract": "verified_id",
        "bonus": "verified_id",
        "bonus_dtype": "int32",
        "host_lists": ["cur_allocated_seq_lens_cpu", "planning_seq_lens_cpu", "reserved_seq_lens_cpu"],
        "host_sums": ["planning_seq_lens_sum", "reserved_seq_lens_sum"],
        "filter_flags": {"has_been_filtered": False},
        "filter_takes_host": False,
        "functions": FUNCTIONS,
    },
}


def recorded(schedule, contract) -> RecordedLoop:
    plan, oracle = Plan.of(schedule), OracleSystem(contract)
    loop = RecordedLoop(plan, oracle, Lane("cpu"), oracle.produces)
    loop.run()
    return loop


def imported(text: str) -> set[str]:
    tree = ast.parse(text)
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names}


# -- the tape ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("contract", [OLD, NEW], ids=lambda contract: contract.name)
@pytest.mark.parametrize("kept", load_corpus(), ids=lambda kept: kept.name)
def test_a_tape_played_again_gives_what_the_loop_saw(kept, contract) -> None:
    """Every read of every kept schedule, from the calls before it alone."""
    schedule = kept.schedule()
    loop = recorded(schedule, contract)
    reads = [place for place, call in enumerate(loop.tape) if call["do"] == "read"]
    assert len(reads) == len(loop.transcript.marks)
    for mark, place in list(enumerate(reads))[:: max(1, len(reads) // 25)]:
        calls = [call for call in loop.tape[:place] if call["do"] != "read"] + [loop.tape[place]]
        seen = play(calls, OracleSystem(contract), Lane("cpu"), schedule.run.slots + 1, schedule.run.host_lengths)
        assert seen["values"] == loop.transcript.value(mark).tolist(), loop.tape[place]


def test_without_direct_carry_a_lost_stash_is_lost() -> None:
    """The shortened tape of a new contract must not live on what an old draft input still carries."""
    loop = recorded(parse('{"version": 1, "requests": [{"id": 0, "budget": 4}]}'), NEW)
    place = next(i for i, call in enumerate(loop.tape) if call["do"] == "read" and call["field"] == "bonus_tokens")
    calls = [call for call in loop.tape[:place] if call["do"] not in ("read", "stash")] + [loop.tape[place]]
    assert play(calls, OracleSystem(NEW), Lane("cpu"), 5, False)["values"] != [-1]
    with pytest.raises(TypeError):  # the buffer was never made
        play(calls, RelayedOracle(NEW), Lane("cpu"), 5, False)


def test_a_tape_is_cut_to_what_matters() -> None:
    tape = [{"iteration": i // 3, "do": "publish", "n": i} for i in range(12)]
    short = shorten(tape, lambda calls: {2, 7} <= {call["n"] for call in calls})
    assert [call["n"] for call in short] == [2, 7, 11]


# -- the script -------------------------------------------------------------------------------------------


def test_a_call_that_has_no_function_on_this_device_makes_no_flat_script() -> None:
    """On a CPU a worker lays out the draft block inline."""
    loop = recorded(parse('{"version": 1, "requests": [{"id": 0, "budget": 4}]}'), NEW)
    place = next(i for i, call in enumerate(loop.tape) if call["do"] == "read" and call["field"] == "bonus_tokens")
    on_a_cpu = {name: function for name, function in FUNCTIONS.items() if name in ("eager_accept", "commit_accept")}
    story = {"tape": loop.tape, "read": place, "calls": 0, "raised": "", "rows": 5, "host_lengths": False}
    story |= {"wanted": {"dtype": None, "values": [1]}, "dialect": DIALECTS["bonus_tokens"] | {"functions": on_a_cpu}}
    story["divergence"] = {"field": "bonus_tokens", "operation": "x", "expected": "1", "actual": "2"}
    block = next(call for call in loop.tape if call["do"] == "draft_block")
    calls = [call for call in loop.tape[:place] if call["do"] not in ("read", "draft_block")]
    assert flat_script(story, [*calls, loop.tape[place]], "title", "release mode", "cpu")
    with pytest.raises(NotFlat, match="draft block"):
        flat_script(story, [*calls, block, loop.tape[place]], "title", "release mode", "cpu")


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_call_and_read_has_its_line(dialect: str, device: str) -> None:
    """Scripts for every field that any kept schedule reads; each compiles and imports torch and SGLang only."""
    made = set()
    for kept in load_corpus():
        schedule = kept.schedule()
        loop = recorded(schedule, NEW if dialect == "bonus_tokens" else OLD)
        last = {call["field"]: place for place, call in enumerate(loop.tape) if call["do"] == "read"}
        for name, place in last.items():
            story = {"tape": loop.tape, "read": place, "calls": 0, "raised": "", "rows": schedule.run.slots + 1}
            story |= {"host_lengths": False, "wanted": {"dtype": None, "values": [1]}, "dialect": DIALECTS[dialect]}
            story["divergence"] = {"field": name, "operation": "x", "expected": "1", "actual": '"""\\'}
            calls = [call for call in loop.tape[:place] if call["do"] not in ("read", "draft_block")] + [loop.tape[place]]
            if name in ("block_ids", "positions", "cache_locs"):
                calls = [call for call in loop.tape[:place] if call["do"] == "draft_block"][-1:] + [loop.tape[place]]
            try:
                text = flat_script(story, calls, 'a """title"""', "release mode", device)
            except NotFlat:
                assert device == "cpu"
                assert name in ("block_ids", "positions", "cache_locs")
                continue
            compile(text, name, "exec")
            assert imported(text) <= {"sys", "traceback", "types", "torch", "sglang"}
            made.add(name)
    assert {"bonus_tokens", "seq_lens", "future_indices", "reserved_lens", "reserved_sum", "out_tokens", "relay_state"} <= made


def test_what_no_relay_call_gives_is_not_made_flat() -> None:
    story = {"read": None, "tape": [], "calls": 0, "dialect": DIALECTS["bonus_tokens"]}
    story["divergence"] = {"verdict": "DIVERGED", "field": "stream, token 3", "operation": "run"}
    with pytest.raises(NotFlat, match="no single relay call"):
        flat_script(story, None, "t", "release mode", "cpu")
    text = replay_script('a "title"', "it takes the loop", story["divergence"], "cpu")
    compile(text, "replay", "exec")
    assert "No flat script of SGLang calls is honest here: it takes the loop." in text


@pytest.mark.parametrize("field", ["bonus_tokens", "process"])
def test_a_script_runs_on_the_sglang_that_its_argument_names(field: str, tmp_path: Path) -> None:
    loop = recorded(parse('{"version": 1, "requests": [{"id": 0, "budget": 4}]}'), NEW)
    place = next(i for i, call in enumerate(loop.tape) if call["do"] == "read" and call["field"] == "bonus_tokens")
    story = {"tape": loop.tape, "read": place if field != "process" else None, "calls": place, "raised": "", "rows": 5}
    story |= {"host_lengths": False, "wanted": {"dtype": None, "values": [1]}, "dialect": DIALECTS["bonus_tokens"]}
    story["divergence"] = {"field": field, "operation": "x", "expected": "1", "actual": "2"}
    calls = [call for call in loop.tape[:place] if call["do"] not in ("read", "draft_block")] + [loop.tape[place]]
    script = tmp_path / "reproduce.py"
    script.write_text(flat_script(story, calls, "t", "release mode", "cpu"), encoding="utf-8")
    (tmp_path / "build/sglang").mkdir(parents=True)
    (tmp_path / "build/sglang/__init__.py").write_text("__version__ = 'of the argument'\n", encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_", "PYTHONPATH"))}
    command = [sys.executable, "-W", "ignore", str(script), str(tmp_path / "build")]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)
    assert "SGLang of the argument from" in done.stdout, done.stderr
    assert done.returncode == 2, "that one has no relay"


def test_a_script_is_run_where_it_lies_in_a_folder_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that a run writes to is named from where it was started."""
    monkeypatch.chdir(tmp_path)
    sut = Sut(str(tmp_path), "", "", "0", "bonus_tokens", "")
    checker = Checker(Path("artifacts/reproducers/one/reproduce.py"), sut, None)
    assert checker("import sys, pathlib; sys.exit(pathlib.Path('reproduce.py').is_file())").words() == "exited 1 on this build, not run on an intact release (none at hand)"
    assert checker("import sys; sys.exit(2)").words() == "exited 2 on this build: it could not run"
    assert checker("").words() == "exited 0 on this build: it does not show the fault"


def test_the_command_names_the_transformers_that_a_release_needs() -> None:
    sut = Sut("/a", "0.5.19", "", "0", "bonus_tokens", "")
    assert how_to_run(sut) == "`PYTHONPATH=<folder with sglang> python reproduce.py`"
    layered = replace(sut, layer="/layers/transformers-5.12.1")
    assert how_to_run(layered, "x") == "`PYTHONPATH=<folder with transformers==5.12.1>:<folder with sglang> python reproduce.py x`"


@pytest.mark.parametrize(("row", "call", "wrong"), [(-1, "stash", "stash"), (-1, "resolve_inputs", None), (3, "resolve_inputs", "resolve_inputs")])
def test_a_row_that_debug_assertions_mark_as_read_is_right_until_it_is_written_again(row: int, call: str, wrong: str | None) -> None:
    def state(*tokens: int) -> dict:
        return dict.fromkeys(BUFFERS) | {next(iter(BUFFERS)): torch.tensor(tokens)}

    right = [state(5, 6), state(5, 6), state(5, 6)]
    seen = [state(5, 6), state(5, row), state(5, row)]
    calls = [{"do": do, "iteration": 0} for do in ("publish", call, "draft_block")]
    found = _first_wrong_row(right, seen, calls)
    assert (found and found["call"]) == wrong


# -- real SGLang ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """What a run on a broken copy left, and what `reports.reproduce` made of it."""
    try:
        intact = locate(RELEASE)
    except SutError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("reproducer")
    sut = locate(str(broken_copy(Path(intact.root), folder / "copy", [BROKEN_RELAYS["stash-reversed"].edit])))
    artifacts = folder / "artifacts"
    for index in range(4):
        failure = {"field": "as the run saw it"}
        save_failure(artifacts, seeded(1, index).to_json(), failure, sut.to_dict(), "release mode")
    return SimpleNamespace(sut=sut, artifacts=artifacts, all=reproduce_run(artifacts, None, "cpu", 60))


def test_what_shows_with_the_scheduler_is_tried_around_the_relay_too(made: SimpleNamespace, tmp_path: Path) -> None:
    """Where the relay alone shows it there is a flat script beside the one that replays."""
    mode = mode_name("cpu", False, "", level="scheduler")
    two = '{"version": 1, "requests": [{"id": 0, "budget": 6}, {"id": 1, "budget": 6}]}'  # little to minimize
    save_failure(tmp_path, parse(two).to_json(), {"field": "as the run saw it"}, made.sut.to_dict(), mode)
    both = reproduce_run(tmp_path, None, "cpu", 30)
    assert {(one.flat, one.outcome.on_sut, one.outcome.on_intact) for one in both} == {(True, 1, 0), (False, 1, 0)}
    assert len({one.folder for one in both}) == 2


def run_script(script: Path, *path: str, **environment: str) -> subprocess.CompletedProcess:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_", "PYTHONPATH"))}
    environment |= {"PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, "-W", "ignore", str(script)]
    return subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=False, cwd=script.parent)


def test_failures_of_one_kind_become_one_reproducer(made: SimpleNamespace) -> None:
    assert len(made.all) == 1
    assert load(made.all[0].folder / "schedule.json").requests
    assert sorted(file.name for file in made.all[0].folder.iterdir()) == [
        "README.md",
        "divergence.json",
        "reproduce.py",
        "schedule.json",
        "timeline.svg",
    ]


def test_its_script_was_run_on_both_builds(made: SimpleNamespace) -> None:
    one = made.all[0]
    assert (one.flat, one.outcome.on_sut, one.outcome.on_intact) == (True, 1, 0)
    text = (one.folder / "reproduce.py").read_text(encoding="utf-8")
    assert one.lines == len(text.splitlines()) <= MOST_LINES
    assert imported(text) <= {"sys", "traceback", "types", "torch", "sglang"}


def test_its_script_says_what_it_ran_on(made: SimpleNamespace) -> None:
    done = run_script(made.all[0].folder / "reproduce.py", *made.sut.path())
    assert done.returncode == 1
    assert f"SGLang {RELEASE} from {made.sut.root}/sglang/__init__.py" in done.stdout
    assert "AssertionError" in done.stderr


@pytest.mark.parametrize("lacks", ["everything", "a name"])
def test_its_script_never_exits_0_where_it_could_not_run(lacks: str, made: SimpleNamespace, tmp_path: Path) -> None:
    package = tmp_path / "sglang"
    for folder in (package, package / "srt", package / "srt/managers"):
        folder.mkdir()
        (folder / "__init__.py").write_text("__version__ = 'none'\n", encoding="utf-8")
    if lacks == "everything":
        (package / "__init__.py").write_text("raise ImportError('no sglang here')\n", encoding="utf-8")
    if lacks == "a name":
        (package / "srt/managers/overlap_utils.py").write_text("class FutureMap: pass\n", encoding="utf-8")
    done = run_script(made.all[0].folder / "reproduce.py", str(tmp_path))
    assert done.returncode == 2, done.stderr


def test_its_readme_tells_the_story_and_nothing_of_this_machine(made: SimpleNamespace) -> None:
    one = made.all[0]
    text = (one.folder / "README.md").read_text(encoding="utf-8")
    assert f"| SGLang | SGLang {RELEASE}" in text
    for part in ("**What differs.**", "1. Iteration 0: prefill of request 0 in slot 1", "stash wrote", "![timeline](timeline.svg)"):
        assert part in text
    assert "`reproduce.py` exited 1 on this build, 0 on the intact SGLang" in text
    assert str(made.artifacts) not in text
    assert made.sut.root not in text
    ET.parse(one.folder / "timeline.svg")


def test_an_empty_run_and_a_broken_one_are_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "summary.json: cannot be read" in capsys.readouterr().err
    save_failure(tmp_path, '{"version": 3}', {"field": "x"}, {"root": str(tmp_path)}, "release mode")
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


HIDDEN = '            getattr(draft_input, "verified" + "_id", None)\n            if False:\n                draft_input.verified_id = None\n'
GATHER = "        else:\n            draft_input.bonus_tokens = self.output_tokens_buf[indices]\n"
POSITIONS = "    logical_pos = prefix_len.to(tl.int64) + cols\n"
NARROW = "self._new_seq_lens_bufs = [\n            torch.empty((new_cap,), dtype=torch.int64"
OTHER_SUITES = {
    "suites/kernels": Edit("sglang/kernels/ops/speculative/dflash.py", POSITIONS, POSITIONS.replace("cols", "cols + (row > 1)")),
    "suites/structure": Edit(OVERLAP_UTILS, GATHER, GATHER + HIDDEN),
    "suites/dtype": Edit("sglang/srt/speculative/dflash_worker_v2.py", NARROW, NARROW.replace("64", "32")),
}


def test_what_the_other_suites_find_has_its_reproducer_too(run_suite, tmp_path: Path) -> None:
    """A kernel's launch, an attribute that should be gone, a name in the source, and a check that stands for itself."""
    try:
        intact = locate(RELEASE)
    except SutError as error:
        pytest.skip(str(error))
    root = str(broken_copy(Path(intact.root), tmp_path / "copy", list(OTHER_SUITES.values())))
    chosen = "any_mask_token or verified_id or narrows"
    ran = run_suite("suites/structure", "suites/dtype", "-k", chosen, "--sut", root, suites="suites/kernels")
    assert ran.code == 1, ran.text
    made = reproduce_run(ran.artifacts, None, "cpu", 60)
    assert {(one.failure["field"], one.flat) for one in made} == {
        ("positions_out", True),
        ("exception", True),
        ("verified_id", True),
        ("test_nothing_narrows_in_the_worker", False),
    }
    for one in made:
        assert (one.outcome.on_sut, one.outcome.on_intact) == (1, 0), one.folder
        assert one.lines <= MOST_LINES
        for file in ("README.md", "reproduce.py"):
            assert root not in (one.folder / file).read_text(encoding="utf-8"), one.folder


def test_failures_that_become_one_when_they_are_small_make_one_folder(tmp_path: Path, monkeypatch) -> None:
    """Each begins as another kind; the smallest of both goes wrong in the same call."""
    first = {"divergence": {"verdict": "DIVERGED", "field": "seq_lens", "operation": "resolve", "actual": "1"}}
    calls = iter(["publish", "merge"])
    written = []
    runner = SimpleNamespace(on_gpu=False, level="relay", job=lambda name, document: first | {"written": {"call": next(calls)}})
    monkeypatch.setattr(reproduce.Reproducers, "_runner", lambda self, sut, **options: runner)
    monkeypatch.setattr(reproduce, "minimize", lambda text, runner, seconds, other: text)
    monkeypatch.setattr(reproduce, "story_of_smallest", lambda minimized, runner: first | {"written": {"call": "publish"}})
    one = SimpleNamespace(failure={"line": "seq_lens"}, folder=tmp_path, outcome=NOT_RUN)
    monkeypatch.setattr(reproduce, "write_reproducer", lambda *given: written.append(given) or one)
    for index in range(2):
        save_failure(tmp_path, seeded(1, index).to_json(), {"field": "x"}, {"root": locate(None).root}, "release mode")
    assert len(reproduce_run(tmp_path, None, "cpu", 1)) == len(written) == 1


def test_two_failures_with_the_same_first_wrong_call_are_one() -> None:
    story = {"divergence": {"verdict": "DIVERGED", "field": "bonus_tokens", "operation": "resolve inputs", "actual": "1"}}
    written = {"written": {"call": "stash"}}
    read = {"written": None, "read": 2, "calls": 3, "tape": [{"do": "merge"}, {"do": "batch"}, {"do": "read"}]}
    assert key_of(story | written) == ("DIVERGED", "bonus_tokens", "resolve inputs", "stash")
    assert key_of(story | read) == ("DIVERGED", "bonus_tokens", "resolve inputs", "merge")


def test_failures_of_earlier_runs_are_left_alone_and_counted(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv(RUN, "")
    sut, kept = {"root": str(tmp_path)}, {}
    for name, index in (("earlier", 1), ("last", 2)):
        begin_run(tmp_path)
        kept[name] = save_failure(tmp_path, seeded(1, index).to_json(), {"field": "x"}, sut, "release mode")
    assert [file for file, _ in failures(tmp_path)] == [kept["last"]]
    assert "1 failures of earlier runs are left alone" in capsys.readouterr().err
    (tmp_path / LAST_RUN).unlink()
    assert sorted(file for file, _ in failures(tmp_path)) == sorted(kept.values())


@pytest.mark.parametrize("text", ["{}", "[1]", '{"sut": {}, "mode": "release mode"}', "null", "not JSON"])
def test_a_folder_that_says_nothing_is_passed_over(text: str, tmp_path, capsys) -> None:
    kept = [save_failure(tmp_path, seeded(1, index).to_json(), {"field": "x"}, {"root": "/a"}, "release mode") for index in (1, 2)]
    kept[0].with_name("divergence.json").write_text(text, encoding="utf-8")
    assert [file for file, _ in failures(tmp_path)] == [kept[1]]
    said = capsys.readouterr().err
    assert said.startswith(f"{kept[0].parent}: passed over (divergence.json: ")
    assert said.count("\n") == 1
