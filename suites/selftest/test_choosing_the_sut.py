"""`--sut` takes a release or a folder; what cannot be tested is a usage error in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures.broken_copy import Edit, broken_copy
from fixtures.changed import changed_files
from fixtures.sut import DEFAULT_RELEASE, DRAFT_INPUT, OVERLAP_UTILS, ROOT, SutError, locate


def test_header_names_what_is_tested(run_suite, sut) -> None:
    ran = run_suite("--schedules", "2", "-k", "streams and release")
    assert ran.code == 0, ran.text
    for part in (sut.release, sut.root, sut.digest, sut.contract, "device: cpu", "stood in for: record_stream"):
        assert part in ran.text


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--sut", "no/such/folder"], "no such folder, and not a release"),
        (["--sut", ""], "--sut: the value is empty"),
        (["--schedules", "-5"], "--schedules -5: give 0 or more"),
        (["--seed", "-1"], "--seed -1: give 0 or more"),
        (["--stalls", "500"], "--stalls 500: give a percentage, 0 to 100"),
        (["--budget", "1m"], "--budget: for --profile nightly alone"),
        (["--hang-limit", "0"], "--hang-limit 0: give seconds, more than 0"),
        (["--hang-limit", "nan"], "--hang-limit nan: give seconds, more than 0"),
        (["--artifacts", "VERSION"], "--artifacts VERSION: nothing can be written there (File exists)"),
        (["--artifacts", "VERSION/below"], "--artifacts VERSION/below: nothing can be written there (Not a directory)"),
        (["--artifacts", "/proc/nowhere"], "--artifacts /proc/nowhere: nothing can be written there"),
        (["--artifacts", ""], "--artifacts: the value is empty"),
        (["--replay", "VERSION"], "--replay VERSION: document: not JSON"),
        (["--sut", "0.5.99"], "--sut 0.5.99: not a release that this suite knows (0.5.14 to 0.5.23)"),
        (["--sut", "oracles"], "looked for sglang/__init__.py in"),
        (["--device", "tpu"], "--device tpu: give cpu, virtual, cuda or cuda:N"),
        (["--device", "cuda:99"], "CUDA devices here"),
        (["--replay", "absent.json"], "--replay absent.json: no such file"),
        (["--budget", "soon"], "'soon' is no time; write 90s, 30m or 8h"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_errors_exit_4(words: list[str], reason: str, run_suite) -> None:
    ran = run_suite(*words)
    assert ran.code == 4, ran.text
    assert reason in ran.text
    assert "Traceback" not in ran.text


def test_usage_errors_come_before_torch_is_imported() -> None:
    """They answer at once; torch alone takes seconds to import."""
    code = (
        "import sys, pytest\n"
        "code = pytest.main(['suites/differential', '--sut', 'no/such/folder'])\n"
        "print(int(code), sorted({'torch', 'hypothesis', 'sglang'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "4 []"


def test_help_begins_with_the_suites_own_options(run_suite) -> None:
    """pytest's own take hundreds of lines."""
    text = run_suite("--help").text
    assert text.index("\nSGLang relay:\n") < text.index("--sut=") < text.index("\ngeneral:\n")


def test_checkout_root_is_pointed_to_its_python_folder(sut, tmp_path: Path) -> None:
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout/python").symlink_to(sut.root)
    with pytest.raises(SutError, match=r"try --sut .*/checkout/python"):
        locate(str(tmp_path / "checkout"))


def test_package_folder_is_pointed_to_its_parent(sut) -> None:
    with pytest.raises(SutError, match="try --sut"):
        locate(str(Path(sut.root) / "sglang"))


@pytest.mark.new_contract
@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (Edit(OVERLAP_UTILS, "class FutureMap:", "class TomorrowMap:"), "found RelayPayload"),
        (Edit(OVERLAP_UTILS, "class RelayPayload:", "class Payload:"), "found FutureMap"),
        (Edit(DRAFT_INPUT, "    bonus_tokens: torch.Tensor\n", "    extra_tokens: torch.Tensor\n"), "found none of these"),
    ],
    ids=["no map", "no payload", "no field"],
)
def test_unknown_contract_says_what_was_found(edit: Edit, found: str, sut, tmp_path: Path) -> None:
    copy = broken_copy(Path(sut.root), tmp_path / "copy", [edit])
    with pytest.raises(SutError, match="no relay contract known here") as refused:
        locate(str(copy))
    assert found in str(refused.value)


def test_file_that_is_not_python_is_refused(sut, tmp_path: Path) -> None:
    copy = broken_copy(Path(sut.root), tmp_path / "copy", [Edit(OVERLAP_UTILS, "class FutureMap:", "class FutureMap")])
    with pytest.raises(SutError, match="is not Python"):
        locate(str(copy))


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ("~nosuchuser/x", "--sut ~nosuchuser/x: no such user"),
        ("x" * 300, "cannot be read: File name too long"),
        ("a/" * 5000, "cannot be read: File name too long"),
        ("a\x00b", "a folder whose name cannot be printed"),
        ("\udcff", "a folder whose name cannot be printed"),
    ],
    ids=["user", "long name", "long path", "zero byte", "not UTF-8"],
)
def test_names_that_no_folder_has_are_refused_in_one_line(wanted: str, reason: str) -> None:
    with pytest.raises(SutError) as refused:
        locate(wanted)
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 500
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), RecursionError("too deep"), MemoryError()], ids=repr)
def test_files_that_cannot_be_read_are_refused(error: BaseException, sut, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise error

    target = "pathlib.Path.read_bytes" if isinstance(error, OSError) else "fixtures.sut.ast.parse"
    with monkeypatch.context() as patched, pytest.raises(SutError, match=r"Permission denied|is not Python \((too deep|MemoryError)\)"):
        patched.setattr(target, refuse)
        locate(sut.root)


def test_digest_tells_builds_of_one_version_apart(broken_sut, sut) -> None:
    changed = broken_sut(Edit(OVERLAP_UTILS, "class FutureMap:", "class FutureMap:  "))
    assert changed.digest != sut.digest
    assert changed.title() == f"{sut.title()}, relay files changed", "no issue accuses the release"


def test_a_change_beside_the_relay_is_told_too(broken_sut, sut) -> None:
    """At scheduler level any file may be the one that was changed."""
    changed = broken_sut(Edit("sglang/srt/managers/scheduler.py", "class Scheduler(", "class  Scheduler("))
    assert changed.digest == sut.digest
    assert changed.title() == f"{sut.title()}, files beside the relay changed"


def test_changed_files_are_named_the_relays_first(broken_sut, sut) -> None:
    edits = (Edit("sglang/srt/managers/scheduler.py", "class Scheduler(", "class  Scheduler("), Edit(OVERLAP_UTILS, "class FutureMap:", "class  FutureMap:"))
    changed = broken_sut(*edits)
    (Path(changed.root) / "sglang/srt/managers/a_new_one.py").write_text("", encoding="utf-8")
    assert changed_files(locate(changed.root)) == ["srt/managers/overlap_utils.py", "srt/managers/a_new_one.py", "srt/managers/scheduler.py"]
    assert changed_files(sut) == []


def test_a_bare_folder_needs_what_the_release_it_states_pins(sut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = broken_copy(Path(sut.root), tmp_path / "copy", [])
    for entry in (*copy.glob("sglang-*.dist-info"), copy / "sglang/_version.py", copy / "sglang/version.py"):
        entry.unlink()
    (copy / "sglang/version.py").write_text("__version__ = '0.5.19'", encoding="utf-8")
    release = tmp_path / "release"
    release.mkdir()
    (release / "pyproject.toml").write_text('[project]\ndependencies = ["transformers==1.2.3"]', encoding="utf-8")
    monkeypatch.setattr("fixtures.sut.release_root", {"0.5.19": release}.__getitem__)
    with pytest.raises(SutError, match="needs transformers 1.2.3"):
        locate(str(copy))


def test_a_release_that_is_not_here_says_nothing_of_changes(sut) -> None:
    assert changed_files(replace(sut, release="9.9.9", digest="other")) == []


def test_a_copy_without_changes_is_the_release(broken_sut, sut) -> None:
    copy = broken_sut()
    assert (copy.title(), changed_files(copy)) == (sut.title(), [])


def test_a_file_whose_name_is_no_text_is_one_like_any_other(broken_sut) -> None:
    changed = broken_sut(Edit("sglang/srt/managers/scheduler.py", "class Scheduler(", "class  Scheduler("))
    Path(os.fsdecode(os.fsencode(changed.root) + b"/sglang/srt/managers/\xff.py")).write_text("", encoding="utf-8")
    assert locate(changed.root).source != changed.source


def test_folders_that_link_to_themselves_are_read_once(broken_sut) -> None:
    changed = broken_sut(Edit("sglang/srt/managers/scheduler.py", "class Scheduler(", "class  Scheduler("))
    (Path(changed.root) / "sglang/srt/managers/again").symlink_to(Path(changed.root) / "sglang/srt")
    assert locate(changed.root).source == changed.source


@pytest.mark.parametrize(
    ("text", "title", "held_against"),
    [
        ("__version__ = version = '0.5.19'\n", "SGLang checkout that states 0.5.19", "0.5.19"),
        ("__version__ = '0.5.24.dev12+gabc'\n", "SGLang checkout that states 0.5.24.dev12+gabc", DEFAULT_RELEASE),
        ("if True:\n    __version__ = '0.0.0.dev0'\n", "SGLang of unknown release", DEFAULT_RELEASE),
    ],
    ids=["a release", "between releases", "nothing"],
)
def test_checkout_is_held_against_the_release_it_states(text: str, title: str, held_against: str, sut, tmp_path: Path) -> None:
    """Nothing of it is imported, and no reviewed finding is taken to speak for it."""
    copy = broken_copy(Path(sut.root), tmp_path / "copy", [])
    for entry in (*copy.glob("sglang-*.dist-info"), copy / "sglang/_version.py", copy / "sglang/version.py"):
        entry.unlink()
    (copy / "sglang/version.py").write_text(text, encoding="utf-8")
    found = locate(str(copy))
    assert (found.release, found.title(), found.nearest_release()) == ("", title, held_against)
