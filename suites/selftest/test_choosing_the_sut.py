"""`--sut` takes a release or a folder; what cannot be tested is a usage error in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.broken_copy import Edit, broken_copy
from fixtures.sut import DRAFT_INPUT, OVERLAP_UTILS, SutError, locate


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
        (["--replay", "VERSION"], "--replay VERSION: document: not JSON"),
        (["--sut", "0.5.99"], "fetch it once with: tox -e sut -- 0.5.99"),
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


def test_digest_tells_builds_of_one_version_apart(broken_sut, sut) -> None:
    assert broken_sut(Edit(OVERLAP_UTILS, "class FutureMap:", "class FutureMap:  ")).digest != sut.digest
