"""The draft block that SGLang's kernel lays out is the oracle's, bit for bit.

Behaviour: `_prepare_dflash_draft_block_unchecked`, first in 0.5.14 (triton_ops/dflash_prepare_block.py); the
dtypes and layouts are those of its caller, `DFlashWorkerV2.forward_batch_generation`. A block size of 0 is
left out: no worker has one, and it crashes Triton's interpreter.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.draw import INTERPRETED
from fixtures.sglang_relay import kernels
from oracles import verify

WIDTH = 24
MASK = 151_669
FIRST_LOCATION = 2**30 + 1
INT32_IDS = [0, 1, 2**15, 2**16 + 1, 2**24 + 1, 2**30, 2**31 - 1]
IDS = {torch.int32: INT32_IDS, torch.int64: [*INT32_IDS, 2**31, 2**32 + 1, 2**62 + 3]}


@pytest.fixture
def check(device, guarded):
    """Lay out one batch, compare every element with the oracle, and see that nothing else was written."""
    prepare_block = kernels.prepare_block()

    def check(bonus, seq_lens, slots, req_to_token, block_size, mask_token=MASK) -> verify.DraftBlock:
        inputs = (bonus, seq_lens, slots, req_to_token)
        before = [tensor.clone() for tensor in inputs]
        outputs = verify.DraftBlock(*(guarded((len(bonus), block_size), torch.int64) for _ in range(3)))
        prepare_block(*inputs, *(output.tensor for output in outputs), mask_token)
        expected = verify.draft_block(*before, block_size, mask_token)
        for field, output, right in zip(expected._fields, outputs, expected, strict=True):
            assert output.tensor.tolist() == right.tolist(), field
            assert output.stray_writes() == [], field
        assert all(map(torch.equal, inputs, before)), "an input changed"
        return expected

    return check


def table(device: str, rows: int, width: int = WIDTH, spare_columns: int = 0) -> torch.Tensor:
    """Cache locations, each once and none of them 0; rows after the last one used are part of it."""
    stride = width + spare_columns
    locations = torch.arange((rows + 4) * stride, dtype=torch.int32, device=device) + FIRST_LOCATION
    return locations.view(rows + 4, stride)[:, :width]


def batch(device: str, size: int, *, dtype: torch.dtype = torch.int64) -> tuple[torch.Tensor, ...]:
    """Bonus tokens, lengths from nothing to beyond the table's width, slots out of order. No row is like another.

    One more request lies behind each, so that a kernel that goes on to it shows in what it writes.
    """
    ids, behind = IDS[dtype], size + 1
    bonus = [ids[i % len(ids)] for i in range(behind)]
    seq_lens = [(WIDTH - 2 + 7 * i) % (WIDTH + 3) for i in range(behind)]
    return (
        torch.tensor(bonus, dtype=dtype, device=device)[:size],
        torch.tensor(seq_lens, dtype=torch.int64, device=device)[:size],
        torch.arange(size, -1, -1, device=device)[:size],
    )


@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 8, 13, 16, 33])
def test_every_block_size_and_batch_size(check, device, block_size):
    for size in (1, 2, 3, 7, 20):
        check(*batch(device, size), table(device, size + 1), block_size)


@pytest.mark.parametrize("dtype", IDS)
def test_an_empty_batch_writes_nothing(device, guarded, dtype):
    outputs = [guarded((4, 5), torch.int64) for _ in range(3)]
    kernels.prepare_block()(
        *batch(device, 0, dtype=dtype), table(device, 3), *(output.tensor[:0] for output in outputs), MASK
    )
    for output in outputs:
        output.assert_untouched()


def test_locations_beyond_the_width_are_0(check, device):
    block_size = 5
    lengths = torch.arange(WIDTH - block_size - 1, WIDTH + 3, device=device)
    slots = torch.arange(1, len(lengths) + 1, device=device)
    block = check(lengths * 100, lengths, slots, table(device, len(lengths) + 1), block_size)
    assert (block.cache_locs != 0).sum(dim=1).tolist() == [5, 5, 4, 3, 2, 1, 0, 0, 0]


def test_positions_beyond_the_width_are_not_clamped(check, device):
    # Nearest first: without its width mask a kernel fails here before it reads far outside the table.
    for length in (WIDTH, 2**15 - 2, 2**16 - 2, 2**24 - 2, 2**31 - 6):
        lengths = torch.tensor([length, 3], device=device)
        block = check(lengths, lengths, torch.tensor([1, 2], device=device), table(device, 3), 5)
        assert block.positions[0].tolist() == list(range(length, length + 5))


@pytest.mark.parametrize("dtype", IDS)
def test_bonus_tokens_of_either_dtype_are_widened_exactly(check, device, dtype):
    """int32 in the old contract and int64 in the new one."""
    size = len(IDS[dtype])
    block = check(*batch(device, size, dtype=dtype), table(device, size + 1), 3)
    assert block.block_ids[:, 0].tolist() == IDS[dtype]


@pytest.mark.parametrize("mask_token", [0, 1, 2**16, 2**31 - 1])
def test_any_mask_token_fills_the_block(check, device, mask_token):
    check(*batch(device, 3), table(device, 4), 5, mask_token)


@pytest.mark.parametrize("dtype", IDS)
def test_inputs_may_be_views_of_larger_buffers(check, device, layout, dtype):
    bonus, seq_lens, slots = batch(device, 7, dtype=dtype)
    locations = table(device, 8)
    check(layout(bonus), seq_lens, slots, locations, 5)
    check(bonus, layout(seq_lens), slots, locations, 5)
    check(bonus, seq_lens, layout(slots), locations, 5)
    check(layout(bonus), layout(seq_lens), layout(slots), locations, 5)


@pytest.mark.parametrize("spare_columns", [1, 8, 40])
def test_the_table_may_be_the_left_part_of_a_wider_one(check, device, spare_columns):
    check(*batch(device, 7), table(device, 8, spare_columns=spare_columns), 5)


@pytest.mark.parametrize("width", [1, 7, 1025])
def test_the_table_may_have_any_width(check, device, width):
    lengths = torch.arange(width + 1, device=device)[-4:]
    slots = torch.arange(1, len(lengths) + 1, device=device)
    check(lengths + 9, lengths, slots, table(device, 5, width), 3)


def test_rows_of_the_table_may_be_read_twice_and_the_padding_row_too(check, device):
    bonus, seq_lens, _ = batch(device, 4)
    check(bonus, seq_lens, torch.tensor([2, 0, 2, 0], device=device), table(device, 3), 5)


@pytest.mark.parametrize("wrong", ["block_ids_out", "positions_out", "cache_loc_out"])
@pytest.mark.parametrize("layout_of_output", ["left part", "transposed"])
def test_outputs_with_gaps_are_refused(device, guarded, wrong, layout_of_output):
    shape, view = {
        "left part": ((3, 8), lambda tensor: tensor[:, :5]),
        "transposed": ((5, 3), torch.t),
    }[layout_of_output]
    names = ("block_ids_out", "positions_out", "cache_loc_out")
    outputs = [guarded(shape if name == wrong else (3, 5), torch.int64) for name in names]
    tensors = [view(o.tensor) if name == wrong else o.tensor for name, o in zip(names, outputs, strict=True)]
    with pytest.raises(ValueError, match=wrong):
        kernels.prepare_block()(*batch(device, 3), table(device, 4), *tensors, MASK)
    for output in outputs:
        output.assert_untouched()


@pytest.mark.parametrize("view", [torch.t, lambda tensor: tensor[:, ::2]], ids=["transposed", "every second column"])
def test_a_table_whose_rows_have_gaps_is_refused(device, guarded, view):
    outputs = [guarded((3, 5), torch.int64) for _ in range(3)]
    with pytest.raises(ValueError, match="req_to_token"):
        kernels.prepare_block()(
            *batch(device, 3), view(table(device, 20, 24)), *(output.tensor for output in outputs), MASK
        )
    for output in outputs:
        output.assert_untouched()


@INTERPRETED
@given(data=st.data())
def test_any_batch(check, device, data):
    dtype = data.draw(st.sampled_from(list(IDS)), label="dtype of the bonus tokens")
    block_size = data.draw(st.integers(1, 17), label="block size")
    width = data.draw(st.integers(1, 40), label="width")
    largest = torch.iinfo(dtype).max
    request = st.tuples(st.integers(0, largest), st.integers(0, width + 20), st.integers(0, 5))
    requests = data.draw(st.lists(request, max_size=6), label="bonus token, length and slot of each request")
    rows = torch.tensor(requests, dtype=torch.int64, device=device).view(-1, 3)
    check(rows[:, 0].to(dtype), rows[:, 1], rows[:, 2], table(device, 60, width), block_size)
