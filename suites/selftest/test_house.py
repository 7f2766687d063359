"""The layout is the documentation: imports go one way, and the oracle needs torch alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures.sut import ROOT

ALLOWED = {
    "oracles": {"oracles"},
    "fixtures": {"oracles", "fixtures"},
    "suites": {"oracles", "fixtures", "suites"},
    "reports": {"oracles", "fixtures", "reports"},
}


def imported(file: Path) -> set[str]:
    tops = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            tops |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            tops.add(node.module.split(".")[0])
    return tops


@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_go_one_way(folder: str) -> None:
    for file in (ROOT / folder).rglob("*.py"):
        if file.is_relative_to(ROOT / "suites/selftest"):
            continue  # may look at everything
        assert imported(file) & set(ALLOWED) <= ALLOWED[folder], file


def test_oracles_import_torch_alone() -> None:
    known = set(sys.stdlib_module_names) | {"torch", "oracles"}
    for file in (ROOT / "oracles").rglob("*.py"):
        assert imported(file) <= known, file


def test_importing_the_oracles_loads_no_sglang() -> None:
    code = (
        "import sys, oracles.relay, oracles.verify, oracles.language_model\n"
        "print([n for n in sys.modules if n.split('.')[0] in ('sglang', 'fixtures', 'triton', 'transformers')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_module_has_an_empty_name() -> None:
    bad = {"utils", "helpers", "common", "misc"}
    found = [file for top in ALLOWED for file in (ROOT / top).rglob("*.py") if file.stem in bad]
    assert found == []
