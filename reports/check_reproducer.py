"""A reproducer of a check that no schedule and no launch stands for: a name in the source, or one of the suite's own tests."""

from __future__ import annotations

from pathlib import Path

from fixtures.artifacts import suite_version, write_atomically
from fixtures.kinds import kind_of
from fixtures.sut import Sut
from reports.checked_script import Checker, how_to_run, name_of_intact
from reports.reproducer import Reproducer, write_facts
from reports.script_parts import FINDS_THE_SUITE, in_a_docstring

MENTIONS = '''"""{title}

Exit 1: a name is there; 0: none is; 2: this could not run.
"""
import ast
import pathlib
import sys
import traceback
try:
    import sglang
    root = pathlib.Path(sglang.__file__).parent.parent
    print("SGLang", sglang.__version__, "from", root)
    named = []
    for name in {files!r}:
        file = root / name
        for node in ast.walk(ast.parse(file.read_text())) if file.is_file() else ():
            words = [getattr(node, field, None) for field in ("id", "attr", "arg", "name", "value")]
            if any(isinstance(word, str) and {word!r} in word for word in words):
                named.append(f"{{name}}:{{getattr(node, 'lineno', 0)}}")
except BaseException:
    traceback.print_exc()
    sys.exit(2)
print(*sorted(set(named)), sep="\\n")
assert not named, "the source still has names with {word} in them"
'''
REPLAY = (
    '''"""{title}

This runs one check of the differential-testing suite, whose folder it takes as its argument:
    python reproduce.py FOLDER-OF-THE-SUITE
Exit 1: the check fails; 0: it passes; 2: it could not run, or was skipped.
"""
'''
    + FINDS_THE_SUITE
    + '''with tempfile.TemporaryDirectory() as scratch:
    command = [sys.executable, "-m", "pytest", {check!r}, "--sut=" + str(root), "--device", {device!r}, "--artifacts", scratch]
    run_suite(command, scratch)
    try:
        checks = json.loads(pathlib.Path(scratch, "summary.json").read_text())["checks"]
    except OSError:
        sys.exit(2)
print("SGLang from", root)
sys.exit(1 if checks["failed"] else 2 if checks["errors"] or not checks["passed"] else 0)
'''
)


def write_check_reproducer(folder: Path, found: dict, failure: dict, sut: Sut, intact: Sut | None, device: str) -> Reproducer:
    """Write the folder at `folder`.

    found: what the run kept of it: `check` (a test's id), or `word` and `places`.
    """
    title = f"{sut.title()}: {failure['line']}"
    safe = in_a_docstring(title)
    if "word" in found:
        text = MENTIONS.format(title=safe, files=sorted({place.rpartition(":")[0] for place in found["places"]}), word=found["word"])
        how = f"needs SGLang only: {how_to_run(sut)}"
    else:
        text = REPLAY.format(title=safe, check=found["check"], device=device)
        how = "runs the check through the suite, whose folder it takes as its argument, because no flat script stands for it"
    outcome = Checker(folder / "reproduce.py", sut, intact)(text)
    lines = [
        f"# {title}",
        "",
        f"**What differs.** {failure['line']}.",
        "",
        f"**How to run.** `reproduce.py` {how}. It exits 1 on a build with the fault, 0 on a right one, 2 when it could not run.",
        "",
        f"**Checked.** `reproduce.py` {outcome.words(name_of_intact(intact, sut))}.",
        "",
        f"SGLang: {sut.title()}, contract `{sut.contract}`, relay files `{sut.digest}`. Suite {suite_version()}.",
        "",
    ]
    write_atomically(folder / "README.md", "\n".join(lines))
    key = (*kind_of(failure), "check")
    write_facts(folder, sut, "release mode", failure, key, True, outcome)
    return Reproducer(folder, failure, 0, "word" in found, text.count("\n"), outcome, key)
