"""Risk 1 of the refactor: bonus tokens went from int32 to int64. Nothing is lost, and nothing narrows on the way."""

from __future__ import annotations

import pytest
import torch

from fixtures.known import sort_findings

LARGEST = 2**31 - 1
STATIONS_OF_THE_WORKER = {"accept buffer for bonus tokens", "accept buffer for lengths"}


@pytest.fixture(scope="module")
def widths(release_runner) -> dict:
    return release_runner.job("widths", rows=1025)


@pytest.fixture
def one_thread():
    """Of torch's own, which would wait for each other in small operations."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_widening_keeps_every_id() -> None:
    """All 2**31 ids survive int32 to int64 and back, in blocks that stay in a core's cache."""
    block = 2**17
    wide = torch.arange(block, dtype=torch.int64)
    narrow, back = torch.empty(block, dtype=torch.int32), torch.empty(block, dtype=torch.int64)
    for start in range(0, 2**31, block):
        narrow.copy_(wide)
        back.copy_(narrow)
        assert torch.equal(back, wide), f"an id in {start} ... {start + block - 1} changed"
        wide += block
    assert int(wide[0]) == 2**31


@pytest.mark.new_contract
@pytest.mark.parametrize("handed_over", ["int32", "int64"])
def test_relay_keeps_ids(release_runner, handed_over: str) -> None:
    """Ids around every power of two come back from stash and gather as they went in."""
    ids = sorted({min(max(2**bit + step, 0), LARGEST) for bit in range(32) for step in (-2, -1, 0, 1, 2)})
    assert release_runner.job("relay_ids", ids=ids, dtype=handed_over) == ids


@pytest.mark.new_contract
def test_relay_keeps_lengths(release_runner) -> None:
    """Lengths around every power of two, longer than any schedule's, come back from publish and resolve as they went in."""
    lengths = sorted({max(2**bit + step, 1) for bit in range(40) for step in (-1, 0, 1)})
    for dtype, some in (("int64", lengths), ("int32", [length for length in lengths if length <= LARGEST])):
        assert release_runner.job("relay_lengths", lengths=some, dtype=dtype) == {"device": some, "host": some}


@pytest.mark.new_contract
def test_relay_is_int64_from_draft_input_to_gather(widths: dict) -> None:
    relay = {name: width for name, width in widths["stations"].items() if name not in STATIONS_OF_THE_WORKER}
    assert {name: width for name, width in relay.items() if width != "int64"} == {}
    assert "verified_id_buf" not in relay


@pytest.mark.new_contract
def test_nothing_narrows_in_the_worker(widths: dict, sut, known, record_property) -> None:
    """What the worker allocates narrower than the contract is found; released cases are `known`, anything else fails."""
    findings = [
        f"{name} is {width}"
        for name, width in widths["stations"].items()
        if name in STATIONS_OF_THE_WORKER and width != "int64"
    ]
    new, stale, matched = sort_findings(findings, "dtype", sut.release, known)
    for entry in matched:
        record_property("known", [entry.id, entry.reason])
    assert not new, f"narrower than the contract: {', '.join(new)}"
    assert not stale, f"known findings that are not there any more: {', '.join(stale)}"


@pytest.mark.new_contract
def test_token_buffers_cost_eight_bytes_a_slot(widths: dict) -> None:
    """int64 costs 8 bytes a slot; the old relay's int64 and int32 buffers together cost 12."""
    assert widths["token_buffer_bytes"] == 8 * widths["rows"]


@pytest.mark.new_contract
def test_relay_holds_tokens_and_lengths_and_nothing_else(widths: dict) -> None:
    """No buffer for what DFlash does not relay; the request table and the pinned mirror of the lengths are allowed."""
    assert set(widths["held"]) - {"req_to_token", "new_seq_lens_cpu_pinned"} == {"new_seq_lens_buf", "output_tokens_buf"}
