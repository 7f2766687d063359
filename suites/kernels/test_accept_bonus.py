"""What SGLang's kernel accepts of a draft block is what the oracle accepts, bit for bit.

Behaviour: `_compute_dflash_accept_bonus_triton_unchecked`, first in 0.5.14 (triton_ops/dflash_accept_bonus.py).
Dtypes are those of `DFlashWorkerV2._ensure_accept_bonus_buffers`: accept and commit lengths int32, tokens
and new lengths int64, the bonus token int32 up to 0.5.15.post1 and int64 from 0.5.16. A block size of 0 is
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

BONUS_DTYPES = (torch.int32, torch.int64)
LARGEST = 2**31 - 1  # token id


@pytest.fixture
def check(device, guarded):
    """Accept one batch, compare every element with the oracle, and see that nothing else was written."""
    accept_bonus = kernels.accept_bonus()

    def check(candidates, target_top1, seq_lens=None, bonus_dtype=torch.int64) -> verify.Accepted:
        if seq_lens is None:
            seq_lens = torch.arange(len(candidates), device=device) * 1000 + 9
        inputs = (candidates, target_top1, seq_lens)
        before = [tensor.clone() for tensor in inputs]
        outputs = buffers(guarded, candidates.shape, bonus_dtype)
        accept_bonus(candidates, target_top1, *tensors(outputs)[:4], seq_lens, outputs.new_seq_lens.tensor)
        expected = verify.accept(*before)
        for field, output, right in zip(expected._fields, outputs, expected, strict=True):
            assert output.tensor.tolist() == right.tolist(), field
            assert output.stray_writes() == [], field
        assert all(map(torch.equal, inputs, before)), "an input changed"
        return expected

    return check


def buffers(guarded, shape: tuple[int, int], bonus_dtype: torch.dtype = torch.int64) -> verify.Accepted:
    rows = shape[:1]
    return verify.Accepted(
        accept_lens=guarded(rows, torch.int32),
        commit_lens=guarded(rows, torch.int32),
        bonus=guarded(rows, bonus_dtype),
        out_tokens=guarded(shape, torch.int64),
        new_seq_lens=guarded(rows, torch.int64),
    )


def tensors(outputs: verify.Accepted) -> list[torch.Tensor]:
    return [output.tensor for output in outputs]


def verified(
    device: str, accept_lens: list[int], block_size: int, *, first_id: int = 1, wrong: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Candidates and the target's choices; a request's drafts are right but for one, which differs in bits `wrong`.

    Ids are distinct and go on from row to row, so each row's end would also match the next row's start.
    """
    chain = torch.arange(len(accept_lens) * block_size + 1, device=device) + first_id
    candidates = chain[:-1].view(-1, block_size).clone()
    for row, accept_len in enumerate(accept_lens):
        if accept_len < block_size - 1:
            candidates[row, accept_len + 1] ^= wrong
    return candidates, chain[1:].view(-1, block_size).clone()


@pytest.mark.parametrize("bonus_dtype", BONUS_DTYPES)
@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 8, 13, 16, 33])
def test_every_accept_length_and_matches_after_the_first_wrong_draft_do_not_count(
    check, device, block_size, bonus_dtype
):
    accept_lens = list(range(block_size))
    accepted = check(*verified(device, accept_lens, block_size, wrong=2**20), bonus_dtype=bonus_dtype)
    assert accepted.accept_lens.tolist() == accept_lens


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_every_batch_size(check, device, size):
    accept_lens = [row * 3 % 5 for row in range(size)]
    accepted = check(*verified(device, accept_lens, 5, wrong=2**20))
    assert accepted.accept_lens.tolist() == accept_lens


@pytest.mark.parametrize("bonus_dtype", BONUS_DTYPES)
def test_an_empty_batch_writes_nothing(device, guarded, bonus_dtype):
    outputs = buffers(guarded, (4, 5), bonus_dtype)
    candidates, target = verified(device, [0, 2, 4], 5)
    *first, new_seq_lens = (output.tensor[:0] for output in outputs)
    kernels.accept_bonus()(candidates[:0], target[:0], *first, candidates[:0, 0], new_seq_lens)
    for output in outputs:
        output.assert_untouched()


@pytest.mark.parametrize("block_size", [2, 3, 5, 8, 13])
def test_a_full_match_ends_with_its_block(check, device, block_size):
    """A row's target choice equals the next row's first candidate, and still the two rows are apart."""
    accepted = check(*verified(device, [block_size - 1] * 3, block_size))
    assert accepted.accept_lens.tolist() == [block_size - 1] * 3


def test_the_first_candidate_is_not_compared(check, device):
    candidates, target = verified(device, [0, 3, 4], 5)
    candidates[:, 0] = target[:, 0]
    accepted = check(candidates, target)
    assert accepted.accept_lens.tolist() == [0, 3, 4]


@pytest.mark.parametrize("first_id", [1, 2**30, 2**61])
def test_ids_that_differ_in_one_bit_only_do_not_match(check, device, first_id):
    bits = [0, 7, 8, 15, 16, 17, 23, 24, 25, 30, 31, 32, 33, 47, 53, 62]
    candidates, target = verified(device, [2] * len(bits), 3, first_id=first_id)
    for row, bit in enumerate(bits):
        candidates[row, 1] ^= 1 << bit
    assert check(candidates, target).accept_lens.tolist() == [0] * len(bits)


@pytest.mark.parametrize("bonus_dtype", BONUS_DTYPES)
def test_the_largest_token_ids_match_and_are_kept(check, device, bonus_dtype):
    accept_lens = [0, 1, 2, 3, 4]
    first_id = LARGEST - 25  # the last choice is the largest id
    accepted = check(*verified(device, accept_lens, 5, first_id=first_id, wrong=2**30), bonus_dtype=bonus_dtype)
    assert accepted.accept_lens.tolist() == accept_lens
    assert accepted.bonus[-1] == LARGEST


def test_int64_tokens_are_not_narrowed(check, device):
    accept_lens = [0, 1, 2, 3, 4]
    accepted = check(*verified(device, accept_lens, 5, first_id=2**40 + 2**31 - 8, wrong=2**35))
    assert accepted.accept_lens.tolist() == accept_lens


def test_equal_ids_everywhere_are_accepted_to_the_end(check, device):
    for token in (0, LARGEST):
        same = torch.full((3, 5), token, device=device)
        assert check(same, same.clone()).accept_lens.tolist() == [4, 4, 4]


def test_new_lengths_are_not_narrowed(check, device):
    seq_lens = torch.tensor([0, 2**15 - 1, 2**16 - 1, 2**24, 2**31 - 1, 2**32 - 1, 2**53], device=device)
    check(*verified(device, [0, 1, 2, 3, 4, 0, 4], 5), seq_lens)


def test_lengths_may_be_a_view_of_a_larger_buffer(check, device, layout):
    seq_lens = torch.tensor([11, 2**16 + 5, 33, 44, 55, 66, 77], device=device)
    check(*verified(device, [0, 4, 1, 3, 2, 4, 0], 5), layout(seq_lens))


def test_candidates_and_choices_may_be_the_front_rows_of_larger_buffers(check, device):
    """The rows behind the batch would match as well."""
    candidates, target = verified(device, [0, 4, 1, 3, 4, 4, 4], 5)
    check(candidates[:3], target[:3])
    check(candidates[1:5], target[1:5])


@pytest.mark.parametrize("wrong", ["candidates", "target_top1"])
@pytest.mark.parametrize("view", [lambda wide: wide[:, :5], lambda wide: wide.t()[:5]], ids=["left part", "transposed"])
def test_inputs_with_gaps_are_refused(device, guarded, wrong, view):
    inputs = dict(zip(("candidates", "target_top1"), verified(device, [4] * 5, 5), strict=True))
    inputs[wrong] = view(torch.arange(40, device=device).view(5, 8))
    outputs = buffers(guarded, (5, 5))
    *first, new_seq_lens = tensors(outputs)
    with pytest.raises(ValueError, match=wrong):
        kernels.accept_bonus()(*inputs.values(), *first, torch.arange(5, device=device), new_seq_lens)
    for output in outputs:
        output.assert_untouched()


@pytest.mark.parametrize("wrong", verify.Accepted._fields)
def test_outputs_with_gaps_are_refused(device, guarded, wrong):
    outputs = buffers(guarded, (10, 5))
    *first, new_seq_lens = (
        output.tensor[::2] if field == wrong else output.tensor[:5] for field, output in outputs._asdict().items()
    )
    with pytest.raises(ValueError, match=wrong):
        kernels.accept_bonus()(*verified(device, [4] * 5, 5), *first, torch.arange(5, device=device), new_seq_lens)
    for output in outputs:
        output.assert_untouched()


def test_lengths_in_two_dimensions_are_refused(device, guarded):
    outputs = buffers(guarded, (3, 5))
    *first, new_seq_lens = tensors(outputs)
    with pytest.raises(ValueError, match="prefix_lens"):
        kernels.accept_bonus()(*verified(device, [4] * 3, 5), *first, torch.ones(3, 1, device=device), new_seq_lens)
    for output in outputs:
        output.assert_untouched()


@INTERPRETED
@given(data=st.data())
def test_any_batch(check, device, data):
    bonus_dtype = data.draw(st.sampled_from(BONUS_DTYPES), label="dtype of the bonus tokens")
    block_size = data.draw(st.integers(1, 17), label="block size")
    ids = st.sampled_from([0, 1, 2**16, 2**30, LARGEST]) | st.integers(0, LARGEST)  # few, so that some match
    row = st.lists(ids, min_size=block_size, max_size=block_size)
    targets = data.draw(st.lists(row, max_size=6), label="the target's choices")
    kept = [data.draw(st.integers(0, block_size), label="drafts that are right") for _ in targets]
    drafted = [
        [*data.draw(st.lists(ids, min_size=1, max_size=1)), *target[:keep], *data.draw(row)][:block_size]
        for target, keep in zip(targets, kept, strict=True)
    ]
    lengths = data.draw(st.lists(st.integers(0, 2**40), min_size=len(targets), max_size=len(targets)), label="lengths")
    rows = (torch.tensor(ids, dtype=torch.int64, device=device).view(-1, block_size) for ids in (drafted, targets))
    check(*rows, torch.tensor(lengths, dtype=torch.int64, device=device), bonus_dtype)
