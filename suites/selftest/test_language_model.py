"""The batched hash chain equals the plain one, and every part of a context decides the next token."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import language_model as lm
from oracles.verify import accept

VOCAB = 2**31


def context(prompt: list[int], salt: int, length: int) -> tuple[torch.Tensor, ...]:
    """A pool that holds the first `length` tokens of a stream from location 1 on."""
    tokens = lm.autoregressive(prompt, salt, VOCAB, length)
    kv = torch.zeros(length + 1, dtype=torch.int64)
    kv[1:] = lm.pack(torch.tensor(tokens), torch.arange(length))
    return torch.tensor(tokens), kv, torch.arange(1, length + 1)[None], torch.tensor([salt])


@settings(derandomize=True, deadline=None, database=None)
@given(
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=5),
    salt=st.integers(-(2**63), 2**63 - 1),
    extra=st.integers(1, 30),
)
def test_batched_equals_autoregressive(prompt: list[int], salt: int, extra: int) -> None:
    length = len(prompt) + extra
    tokens, kv, locations, salts = context(prompt, salt, length)
    powers = lm.step_powers(length, "cpu")
    ends = torch.arange(len(prompt) - 1, length - 1)[None]
    assert lm.next_tokens(torch.take(kv, locations), ends, salts, powers, VOCAB)[0].tolist() == tokens[len(prompt) :].tolist()


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("change", ["token", "position", "location"])
def test_every_part_of_the_context_matters(place: int, change: str) -> None:
    tokens, kv, locations, salts = context([5, 6, 7], 99, 6)
    powers, ends = lm.step_powers(6, "cpu"), torch.tensor([[5]])
    before = lm.next_tokens(torch.take(kv, locations), ends, salts, powers, VOCAB)
    if change == "token":
        kv[place + 1] += 1 << lm.POSITION_BITS
    elif change == "position":
        kv[place + 1] += 1
    else:
        locations[0, place] = locations[0, (place + 1) % 6].item()
    assert lm.next_tokens(torch.take(kv, locations), ends, salts, powers, VOCAB).item() != before.item()


def test_a_corrupted_length_gives_a_wrong_token_not_a_wild_read() -> None:
    _, kv, locations, salts = context([5, 6, 7], 99, 6)
    powers = lm.step_powers(6, "cpu")
    for end in (-(2**62), -1, 6, 2**62):
        assert 0 <= lm.next_tokens(torch.take(kv, locations), torch.tensor([[end]]), salts, powers, VOCAB).item() < VOCAB


@pytest.mark.parametrize("block", [1, 2, 3, 8])
def test_draft_gives_every_accept_length(block: int) -> None:
    truth = torch.tensor([lm.autoregressive([3], 1, 128, 40)])
    for right in range(block):
        positions = torch.arange(4, 4 + block)[None]
        drafts = lm.propose(truth, torch.tensor([0]), positions, torch.tensor([right]), 128)
        candidates = torch.cat([truth[:, 4:5], drafts], dim=1)
        accepted = accept(candidates, truth[:, 5 : 5 + block], torch.tensor([4]))
        assert accepted.accept_lens.tolist() == [right]
        assert accepted.new_seq_lens.tolist() == [4 + right + 1]
        assert accepted.out_tokens[0, : right + 1].tolist() == truth[0, 5 : 6 + right].tolist()
