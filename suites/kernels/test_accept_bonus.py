"""What SGLang's kernel accepts of a draft block is what the oracle accepts, bit for bit.

Behaviour: `_compute_dflash_accept_bonus_triton_unchecked`, first in 0.5.14 (triton_ops/dflash_accept_bonus.py).
Dtypes are those of `DFlashWorkerV2._ensure_accept_bonus_buffers`: accept and commit lengths int32, tokens
and new lengths int64, the bonus token int32 up to 0.5.15.post1 and int64 from 0.5.16. A block size of 0 is
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
from fixtures.sglang_relay.kernels import ACCEPT_BONUS
from oracles import verify

BONUS_DTYPES = (torch.int32, torch.int64)
LARGEST = 2**31 - 1  # token id


@pytest.fixture
def check(launch):
    """Accept one batch as the oracle does; gives what is right."""

    def check(candidates, target_top1, seq_lens=None, bonus_dtype=torch.int64) -> verify.Accepted:
        if seq_lens is None:
            seq_lens = torch.arange(len(candidates)) * 1000 + 9
        inputs = {"candidates": candidates, "target_top1": target_top1, "seq_lens": seq_lens}
        return verify.Accepted(*right_values(launch(ACCEPT_BONUS, inputs, outputs(candidates.shape, bonus_dtype))))

    return check


def outputs(shape: tuple[int, int], bonus_dtype: torch.dtype = torch.int64) -> dict[str, Layout]:
    rows = shape[:1]
    return {
        "accept_lens": Layout.plain(torch.int32, rows),
        "commit_lens": Layout.plain(torch.int32, rows),
        "bonus": Layout.plain(bonus_dtype, rows),
        "out_tokens": Layout.plain(torch.int64, shape),
        "new_seq_lens": Layout.plain(torch.int64, rows),
    }


def verified(
    accept_lens: list[int], block_size: int, *, first_id: int = 1, wrong: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Candidates and the target's choices; a request's drafts are right but for one, which differs in bits `wrong`.

    Ids are distinct and go on from row to row, so each row's end would also match the next row's start.
    """
    chain = torch.arange(len(accept_lens) * block_size + 1) + first_id
    candidates = chain[:-1].view(-1, block_size).clone()
    for row, accept_len in enumerate(accept_lens):
        if accept_len < block_size - 1:
            candidates[row, accept_len + 1] ^= wrong
    return candidates, chain[1:].view(-1, block_size).clone()


@pytest.mark.parametrize("bonus_dtype", BONUS_DTYPES)
@pytest.mark.parametrize("block_size", [1, 2, 3, 5, 8, 13, 16, 33, 65])
def test_every_accept_length_and_matches_after_the_first_wrong_draft_do_not_count(
    check, block_size, bonus_dtype
):
    accept_lens = list(range(block_size))
    accepted = check(*verified(accept_lens, block_size, wrong=2**20), bonus_dtype=bonus_dtype)
    assert accepted.accept_lens.tolist() == accept_lens


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_every_batch_size(check, size):
    accept_lens = [row * 3 % 5 for row in range(size)]
    accepted = check(*verified(accept_lens, 5, wrong=2**20))
    assert accepted.accept_lens.tolist() == accept_lens


@pytest.mark.parametrize("bonus_dtype", BONUS_DTYPES)
def test_an_empty_batch_writes_nothing(check, bonus_dtype):
    candidates, target = verified([0, 2, 4], 5)
    check(candidates[:0], target[:0], candidates[:0, 0], bonus_dtype)


@pytest.mark.parametrize("block_size", [2, 3, 5, 8, 13])
def test_a_full_match_ends_with_its_block(check, block_size):
    """A row's target choice equals the next row's first candidate, and still the two rows are apart."""
    accepted = check(*verified([block_size - 1] * 3, block_size))
    assert accepted.accept_lens.tolist() == [block_size - 1] * 3


def test_the_first_candidate_is_not_compared(check):
    candidates, target = verified([0, 3, 4], 5)
    candidates[:, 0] = target[:, 0]
    accepted = check(candidates, target)
    assert accepted.accept_lens.tolist() == [0, 3, 4]


@pytest.mark.parametrize("first_id", [1, 2**30, 2**61])
def test_ids_that_differ_in_one_bit_only_do_not_match(check, first_id):
    bits = [0, 7, 8, 15, 16, 17, 23, 24, 25, 30, 31, 32, 33, 47, 53, 62]
    candidates, target = verified([2] * len(bits), 3, first_id=first_id)
    for row, bit in enumerate(bits):
        candidates[row, 1] ^= 1 << bit
    assert check(candidates, target).accept_lens.tolist() == [0] * len(bits)


@pytest.mark.parametrize("bonus_dtype", BONUS_DTYPES)
def test_the_largest_token_ids_match_and_are_kept(check, bonus_dtype):
    accept_lens = [0, 1, 2, 3, 4]
    first_id = LARGEST - 25  # the last choice is the largest id
    accepted = check(*verified(accept_lens, 5, first_id=first_id, wrong=2**30), bonus_dtype=bonus_dtype)
    assert accepted.accept_lens.tolist() == accept_lens
    assert accepted.bonus[-1] == LARGEST


def test_int64_tokens_are_not_narrowed(check):
    accept_lens = [0, 1, 2, 3, 4]
    accepted = check(*verified(accept_lens, 5, first_id=2**40 + 2**31 - 8, wrong=2**35))
    assert accepted.accept_lens.tolist() == accept_lens


def test_equal_ids_everywhere_are_accepted_to_the_end(check):
    for token in (0, LARGEST):
        same = torch.full((3, 5), token)
        assert check(same, same.clone()).accept_lens.tolist() == [4, 4, 4]


def test_new_lengths_are_not_narrowed(check):
    seq_lens = torch.tensor([0, 2**15 - 1, 2**16 - 1, 2**24, 2**31 - 1, 2**32 - 1, 2**53])
    check(*verified([0, 1, 2, 3, 4, 0, 4], 5), seq_lens)


def test_lengths_may_be_a_view_of_a_larger_buffer(check, layout):
    seq_lens = torch.tensor([11, 2**16 + 5, 33, 44, 55, 66, 77])
    check(*verified([0, 4, 1, 3, 2, 4, 0], 5), layout(seq_lens))


def test_candidates_and_choices_may_be_the_front_rows_of_larger_buffers(check):
    """The rows behind the batch would match as well."""
    candidates, target = verified([0, 4, 1, 3, 4, 4, 4], 5)
    check(candidates[:3], target[:3])
    check(candidates[1:5], target[1:5])


@pytest.mark.parametrize("wrong", ["candidates", "target_top1"])
@pytest.mark.parametrize("view", [lambda wide: wide[:, :5], lambda wide: wide.t()[:5]], ids=["left part", "transposed"])
def test_inputs_with_gaps_are_refused(launch, wrong, view):
    inputs = dict(zip(("candidates", "target_top1"), verified([4] * 5, 5), strict=True))
    inputs |= {wrong: view(torch.arange(40).view(5, 8)), "seq_lens": torch.arange(5)}
    launch(ACCEPT_BONUS, inputs, outputs((5, 5)), refuses=wrong)


@pytest.mark.parametrize("wrong", verify.Accepted._fields)
def test_outputs_with_gaps_are_refused(launch, wrong):
    candidates, target = verified([4] * 5, 5)
    inputs = {"candidates": candidates, "target_top1": target, "seq_lens": torch.arange(5)}
    plain = outputs((5, 5))
    gaps = replace(plain[wrong], stride=(2 * plain[wrong].stride[0], *plain[wrong].stride[1:]))
    launch(ACCEPT_BONUS, inputs, plain | {wrong: gaps}, refuses=wrong)


def test_lengths_in_two_dimensions_are_refused(launch):
    candidates, target = verified([4] * 3, 5)
    inputs = {"candidates": candidates, "target_top1": target, "seq_lens": torch.ones((3, 1), dtype=torch.int64)}
    launch(ACCEPT_BONUS, inputs, outputs((3, 5)), refuses="prefix_lens")


@INTERPRETED
@given(data=st.data())
def test_any_batch(check, data):
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
    rows = (torch.tensor(ids, dtype=torch.int64).view(-1, block_size) for ids in (drafted, targets))
    check(*rows, torch.tensor(lengths, dtype=torch.int64), bonus_dtype)
