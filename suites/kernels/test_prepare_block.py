"""The draft block that SGLang's kernel lays out is the oracle's, bit for bit.

Behaviour: `_prepare_dflash_draft_block_unchecked`, first in 0.5.14 (triton_ops/dflash_prepare_block.py); the
dtypes and layouts are those of its caller, `DFlashWorkerV2.forward_batch_generation`. A block size of 0 is
left out: no worker has one, and it crashes Triton's interpreter.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.draw import INTERPRETED
from fixtures.launch import Layout, right_values
from fixtures.sglang_relay.kernels import PREPARE_BLOCK
from oracles import verify

WIDTH = 24
MASK = 151_669
FIRST_LOCATION = 2**30 + 1
INT32_IDS = [0, 1, 2**15, 2**16 + 1, 2**24 + 1, 2**30, 2**31 - 1]
IDS = {torch.int32: INT32_IDS, torch.int64: [*INT32_IDS, 2**31, 2**32 + 1, 2**62 + 3]}


@pytest.fixture
def check(launch):
    """Lay out one batch as the oracle does; gives what is right."""

    def check(bonus, seq_lens, slots, req_to_token, block_size, mask_token=MASK) -> verify.DraftBlock:
        inputs = {"bonus": bonus, "seq_lens": seq_lens, "slots": slots, "req_to_token": req_to_token}
        return verify.DraftBlock(*right_values(launch(PREPARE_BLOCK, inputs, outputs(len(bonus), block_size), mask_token=mask_token)))

    return check


def outputs(size: int, block_size: int) -> dict[str, Layout]:
    return {name: Layout.plain(torch.int64, (size, block_size)) for name in ("block_ids_out", "positions_out", "cache_loc_out")}


def table(rows: int, width: int = WIDTH, spare_columns: int = 0) -> torch.Tensor:
    """Cache locations, each once and none of them 0; rows after the last one used are part of it."""
    stride = width + spare_columns
    locations = torch.arange((rows + 4) * stride, dtype=torch.int32) + FIRST_LOCATION
    return locations.view(rows + 4, stride)[:, :width]


def batch(size: int, *, dtype: torch.dtype = torch.int64) -> tuple[torch.Tensor, ...]:
    """Bonus tokens, lengths from nothing to beyond the table's width, slots out of order. No row is like another.

    One more request lies behind each, so that a kernel that goes on to it shows in what it writes.
    """
    ids, behind = IDS[dtype], size + 1
    bonus = [ids[i % len(ids)] for i in range(behind)]
    seq_lens = [(WIDTH - 2 + 7 * i) % (WIDTH + 3) for i in range(behind)]
    return (
        torch.tensor(bonus, dtype=dtype)[:size],
        torch.tensor(seq_lens, dtype=torch.int64)[:size],
        torch.arange(size, -1, -1)[:size],
    )


@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 8, 13, 16, 33, 65])
def test_every_block_size_and_batch_size(check, block_size):
    for size in (1, 2, 3, 7, 20):
        check(*batch(size), table(size + 1), block_size)


@pytest.mark.parametrize("dtype", IDS)
def test_an_empty_batch_writes_nothing(check, dtype):
    check(*batch(0, dtype=dtype), table(3), 5)


def test_locations_beyond_the_width_are_0(check):
    block_size = 5
    lengths = torch.arange(WIDTH - block_size - 1, WIDTH + 3)
    slots = torch.arange(1, len(lengths) + 1)
    block = check(lengths * 100, lengths, slots, table(len(lengths) + 1), block_size)
    assert (block.cache_locs != 0).sum(dim=1).tolist() == [5, 5, 4, 3, 2, 1, 0, 0, 0]


def test_positions_beyond_the_width_are_not_clamped(check):
    # Nearest first: without its width mask a kernel fails here before it reads far outside the table.
    for length in (WIDTH, 2**15 - 2, 2**16 - 2, 2**24 - 2, 2**31 - 6, 2**31 - 2, 2**32 + 3, 2**40):
        lengths = torch.tensor([length, 3])
        block = check(lengths, lengths, torch.tensor([1, 2]), table(3), 5)
        assert block.positions[0].tolist() == list(range(length, length + 5))


@pytest.mark.parametrize("dtype", IDS)
def test_bonus_tokens_of_either_dtype_are_widened_exactly(check, dtype):
    """int32 in the old contract and int64 in the new one."""
    size = len(IDS[dtype])
    block = check(*batch(size, dtype=dtype), table(size + 1), 3)
    assert block.block_ids[:, 0].tolist() == IDS[dtype]


@pytest.mark.parametrize("mask_token", [0, 1, 2**16, 2**31 - 1])
def test_any_mask_token_fills_the_block(check, mask_token):
    check(*batch(3), table(4), 5, mask_token)


@pytest.mark.parametrize("dtype", IDS)
def test_inputs_may_be_views_of_larger_buffers(check, layout, dtype):
    bonus, seq_lens, slots = batch(7, dtype=dtype)
    locations = table(8)
    check(layout(bonus), seq_lens, slots, locations, 5)
    check(bonus, layout(seq_lens), slots, locations, 5)
    check(bonus, seq_lens, layout(slots), locations, 5)
    check(layout(bonus), layout(seq_lens), layout(slots), locations, 5)


@pytest.mark.parametrize("spare_columns", [1, 8, 40])
def test_the_table_may_be_the_left_part_of_a_wider_one(check, spare_columns):
    check(*batch(7), table(8, spare_columns=spare_columns), 5)


@pytest.mark.parametrize("width", [1, 7, 1025])
def test_the_table_may_have_any_width(check, width):
    lengths = torch.arange(width + 1)[-4:]
    slots = torch.arange(1, len(lengths) + 1)
    check(lengths + 9, lengths, slots, table(5, width), 3)


def test_rows_of_the_table_may_be_read_twice_and_the_padding_row_too(check):
    bonus, seq_lens, _ = batch(4)
    check(bonus, seq_lens, torch.tensor([2, 0, 2, 0]), table(3), 5)


@pytest.mark.parametrize("wrong", outputs(3, 5))
@pytest.mark.parametrize("stride", [(8, 1), (1, 3)], ids=["left part", "transposed"])
def test_outputs_with_gaps_are_refused(launch, wrong, stride):
    inputs = dict(zip(("bonus", "seq_lens", "slots"), batch(3), strict=True)) | {"req_to_token": table(4)}
    gaps = {wrong: replace(outputs(3, 5)[wrong], stride=stride)}
    launch(PREPARE_BLOCK, inputs, outputs(3, 5) | gaps, refuses=wrong, mask_token=MASK)


@pytest.mark.parametrize("view", [torch.t, lambda tensor: tensor[:, ::2]], ids=["transposed", "every second column"])
def test_a_table_whose_rows_have_gaps_is_refused(launch, view):
    inputs = dict(zip(("bonus", "seq_lens", "slots"), batch(3), strict=True)) | {"req_to_token": view(table(20, 24))}
    launch(PREPARE_BLOCK, inputs, outputs(3, 5), refuses="req_to_token", mask_token=MASK)


@INTERPRETED
@given(data=st.data())
def test_any_batch(check, data):
    dtype = data.draw(st.sampled_from(list(IDS)), label="dtype of the bonus tokens")
    block_size = data.draw(st.integers(1, 17), label="block size")
    width = data.draw(st.integers(1, 40), label="width")
    largest = torch.iinfo(dtype).max
    request = st.tuples(st.integers(0, largest), st.integers(0, width + 20), st.integers(0, 5))
    requests = data.draw(st.lists(request, max_size=6), label="bonus token, length and slot of each request")
    rows = torch.tensor(requests, dtype=torch.int64).view(-1, 3)
    check(rows[:, 0].to(dtype), rows[:, 1], rows[:, 2], table(60, width), block_size)
