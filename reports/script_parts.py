"""What scripts have in common: how they begin, what runs in a child, and how one finds the suite."""

from __future__ import annotations

import textwrap

CAME_BACK = 90  # a child's exit code that no fault is likely to give
WATCHDOG = 60  # seconds after the imports in which a script must be done
WIDTH = 118
CODES = "Exit 1: the fault is there; 0: it is not; 2: this could not run."
COULD_NOT_RUN = ["except BaseException:", "    traceback.print_exc()", "    sys.exit(2)"]
WORDS = 'sys.path[:0] = [word for word in sys.argv[1:] if word != "child"]'
SAYS_WHAT_IT_RAN_ON = 'print("SGLang", sglang.__version__, "from", sglang.__file__, "torch", torch.__version__)'
WATCHED = f"faulthandler.dump_traceback_later({WATCHDOG}, exit=True)  # exits 1 where "

# Of a template: `suite` and `root`, the folders of the suite and of the SGLang that would be imported, and `environment`.
FINDS_THE_SUITE = '''import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

suite = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("RELAY_SUITE", "."))
found = importlib.util.find_spec("sglang")
if found is None or not (suite / "suites/differential").is_dir():
    print("no sglang to import" if found is None else f"{{suite}} is not the suite's folder")
    sys.exit(2)
root = pathlib.Path(found.submodule_search_locations[0]).parent
path = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and not pathlib.Path(p, "sglang").is_dir()]
environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path))  # the suite puts this SGLang in front itself


def run_suite(command, scratch):
    with subprocess.Popen(command, cwd=suite, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if scratch not in line:  # that folder goes
                print(line, end="", flush=True)
    return process.returncode


'''


def in_a_docstring(title: str) -> str:
    """The title as it can stand between triple quotes."""
    return title.replace('"', "'").replace("\\", "/")


def flat_docstring(title: str) -> str:
    """Of a script that needs torch and SGLang only."""
    wrapped = in_a_docstring("\n".join(textwrap.wrap(title, WIDTH - 3)))
    return f'"""{wrapped}\n\n{CODES} Arguments: folders to import sglang from."""'


def in_a_child(what: str) -> list[str]:
    """The script starts itself again, since `what`, in words, may kill or hang the process."""
    return [
        f"if 'child' not in sys.argv:  # {what}",
        '    code = subprocess.run([sys.executable, __file__, *sys.argv[1:], "child"]).returncode',
        f"    sys.exit({{{CAME_BACK}: 0, 2: 2}}.get(code, 1))",
    ]
