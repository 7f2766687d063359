"""`reproduce.py` where no flat script is honest: it replays the schedule through this suite, and says so."""

from __future__ import annotations

from reports.script_parts import CODES, FINDS_THE_SUITE, in_a_docstring

TEMPLATE = (
    '''"""{title}

This replays schedule.json through the differential-testing suite, whose folder it takes as its argument:
    python reproduce.py FOLDER-OF-THE-SUITE
No flat script of SGLang calls is honest here: {why}.
'''
    + CODES
    + '\n"""\n'
    + FINDS_THE_SUITE
    + '''KIND = {kind!r}
schedule = pathlib.Path(__file__).resolve().with_name("schedule.json")
with tempfile.TemporaryDirectory() as scratch:
    command = [sys.executable, "-m", "pytest", "suites/differential", "--replay", str(schedule), "--sut=" + str(root)]
    command += ["--level", {level!r}]
    command += ["--device", {device!r}, "--artifacts", scratch]
    code = run_suite(command, scratch)
    try:
        summary = json.loads(pathlib.Path(scratch, "summary.json").read_text())
    except OSError:
        sys.exit(2)
print("SGLang", summary["sut"]["release"], "from", root)
if any([f["verdict"], f["field"].split(",")[0], f["operation"]] == KIND for f in summary["failures"]):
    sys.exit(1)
sys.exit(0 if code == 0 and summary["verdict"] in ("PASS", "known") else 2)
'''
)


def replay_script(title: str, why: str, failure: dict, device: str, level: str = "relay") -> str:
    """The script's text. why: no flat one is honest, in words that end a sentence. level: as `--level` takes it."""
    kind = [failure["verdict"], failure["field"].split(",")[0], failure["operation"]]
    return TEMPLATE.format(title=in_a_docstring(title), why=why, kind=kind, device=device, level=level)
