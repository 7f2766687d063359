"""A kernel launch as data is faithful, is judged in every respect, and becomes small; fake kernels stand for SGLang's."""

from __future__ import annotations

import ast

import pytest
import torch

from fixtures.kinds import kind_of
from fixtures.launch import SIGNATURES, Held, Launch, Layout, difference, right_values
from fixtures.sglang_relay import kernels
from oracles import verify
from reports.launch_reduction import STEPS, _is_legal, reduce_launch
from reports.launch_script import launch_script

BLOCK = ("block_ids_out", "positions_out", "cache_loc_out")


def right(bonus, seq_lens, slots, req_to_token, block_ids, positions, cache_locs, mask_token):
    block = verify.draft_block(bonus, seq_lens, slots, req_to_token, block_ids.shape[1], mask_token)
    for output, value in zip((block_ids, positions, cache_locs), block, strict=True):
        output.copy_(value)


def prepared(size: int = 5, block: int = 4, **more) -> Launch:
    table = torch.arange(12 * 20, dtype=torch.int32).view(12, 20)[:, :16]
    inputs = {
        "bonus": torch.arange(100, 100 + 2 * size)[::2],
        "seq_lens": torch.arange(1, size + 1),
        "slots": torch.arange(size, 0, -1),
        "req_to_token": table,
    }
    outputs = {name: Layout.plain(torch.int64, (size, block)) for name in BLOCK}
    held = {name: Held.of(tensor) for name, tensor in inputs.items()}
    return Launch(kernels.PREPARE_BLOCK, held, more.pop("outputs", outputs), {"mask_token": 7}, **more)


@pytest.fixture
def kernel(monkeypatch):
    """Puts a function in the place of SGLang's kernel."""

    def put(function, name: str = kernels.PREPARE_BLOCK) -> None:
        monkeypatch.setitem(kernels.KERNELS, name, lambda: function)

    return put


def test_a_launch_comes_back_from_its_document_as_it_was(kernel) -> None:
    launch = Launch.from_json(prepared().to_json())
    for name, held in prepared().inputs.items():
        again = launch.inputs[name]
        assert (again.shape, again.stride, again.offset) == (held.shape, held.stride, held.offset)
        assert torch.equal(again.make("cpu"), held.view())
    kernel(right)
    assert difference(launch, "cpu") is None


def test_floats_keep_every_bit() -> None:
    bits = torch.tensor([0x7FC00001, -(2**31), 1], dtype=torch.int32)
    launch = Launch(kernels.GATHER, {"indices": Held.of(torch.tensor([0])), "topk_p_buf": Held.of(bits.view(torch.float32))})
    again = Launch.from_json(launch.to_json()).inputs["topk_p_buf"].view()
    assert again.dtype == torch.float32
    assert torch.equal(again.view(torch.int32), bits)


def _wrong_value(*tensors):
    right(*tensors)
    tensors[5][2, 1] += 1


def _writes_beside(*tensors):
    right(*tensors)
    tensors[6].as_strided((1,), (1,), tensors[6].storage_offset() + tensors[6].numel()).fill_(0)


def _changes_an_input(*tensors):
    right(*tensors)
    tensors[3].as_strided((1,), (1,), 17).fill_(5)  # behind the width of a row


def _leaves_one_out(*tensors):
    right(*tensors[:4], tensors[4], tensors[5], tensors[6].clone(), tensors[7])


def _raises(*tensors):
    raise RuntimeError("out of luck")


@pytest.mark.parametrize(
    ("function", "field"),
    [
        (_wrong_value, "positions_out"),
        (_writes_beside, "memory beside an output"),
        (_changes_an_input, "req_to_token (an input)"),
        (_leaves_one_out, "cache_loc_out"),
        (_raises, "exception"),
    ],
)
def test_what_a_kernel_does_wrong_is_named_and_its_script_is_short(kernel, function, field) -> None:
    kernel(function)
    found = difference(prepared(), "cpu")
    assert found.field == field
    text = launch_script(prepared(1, 2), found.to_dict(), "title", "sglang.kernels", "cpu")
    ast.parse(text)
    assert text.count("\n") <= 60


def test_a_launch_that_should_be_refused_must_be(kernel) -> None:
    gaps = {name: Layout(torch.int64, (3, 2), (5, 1)) for name in BLOCK}
    launch = prepared(3, 2, outputs=gaps, refuses="positions_out")

    def refuses(*tensors):
        raise ValueError("positions_out has gaps")

    def refuses_late(*tensors):
        tensors[5].fill_(0)
        refuses()

    for function, field in ((refuses, None), (right, "refusal"), (refuses_late, "positions_out")):
        kernel(function)
        found = difference(launch, "cpu")
        assert (found and found.field) == field


def _wrong_for_the_third(*tensors):
    """And only where the block has two columns and the length is over 1."""
    right(*tensors)
    if tensors[5].shape[0] > 2 and tensors[5].shape[1] > 1 and tensors[1][2] > 1:
        tensors[5][2, 1] += 1


def test_a_launch_becomes_1_minimal(kernel) -> None:
    kernel(_wrong_for_the_third)

    def attempt(launch: Launch) -> dict | None:
        found = difference(launch, "cpu")
        return found and found.to_dict()

    big = prepared(9, 6)
    failure = attempt(big)
    small, seen, complete = reduce_launch(big, failure, attempt, 60.0)
    assert complete
    assert kind_of(seen) == kind_of(failure)
    assert (small.requests(), small.outputs["positions_out"].shape[1]) == (3, 2)
    assert small.inputs["seq_lens"].view().tolist() == [0, 0, 2]
    assert small.inputs["req_to_token"].shape == (1, 1)
    for step in STEPS:
        for smaller in step(small):
            found = attempt(smaller) if _is_legal(smaller) else None
            assert found is None or kind_of(found) != kind_of(failure), step.__name__


def test_every_kernel_has_a_signature_whose_oracle_gives_what_it_writes() -> None:
    assert set(SIGNATURES) == set(kernels.KERNELS)
    assert len(right_values(prepared())) == len(SIGNATURES[kernels.PREPARE_BLOCK].writes)
