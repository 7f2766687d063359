"""What an EAGLE draft leaves for the next step beside the bonus token, and what it drafts from it.

Candidates for the first draft with their probabilities, and a hidden state that holds the digest of the whole
context, bonus token included: wrong rows of any of them show in the drafts. Buffers are indexed by request row.
Layouts follow SGLang 0.5.14's `EagleDraftInput` and `FutureMap`: topk_p float32, topk_index int64, hidden states.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from oracles import language_model as lm

CHUNKS, CHUNK_BITS = 4, 16  # a digest of 64 bits in float32, which is exact below 2**24


class Extras(NamedTuple):
    """topk_p: float32 [batch, topk]. topk_index: int64 [batch, topk]. hidden_states: float32 [batch, 4]."""

    topk_p: torch.Tensor
    topk_index: torch.Tensor
    hidden_states: torch.Tensor


def digests(
    kv: torch.Tensor,
    locations: torch.Tensor,
    lengths: torch.Tensor,
    bonus: torch.Tensor,
    salts: torch.Tensor,
    powers: torch.Tensor,
) -> torch.Tensor:
    """Of each context of `lengths` tokens in the pool and the bonus token behind it: int64 [batch].

    kv, locations, salts, powers: as `language_model.next_tokens` takes them. lengths, bonus: int64 [batch].
    """
    width = locations.shape[1]
    inside = torch.arange(width, device=lengths.device) < lengths[:, None]
    context = (lm.mix(torch.take(kv, locations)) * powers[:width] * inside).sum(1)
    return salts + context + lm.mix(lm.pack(bonus, lengths)) * _power(powers, lengths)


def extras(digest: torch.Tensor, topk: int, vocab: int) -> Extras:
    """What the draft leaves behind: the true next token is the likeliest candidate, at a place that the digest chooses."""
    place = (digest >> 3) % topk
    offset = (torch.arange(topk, device=digest.device) - place[:, None]) % topk
    hidden = torch.stack([(digest >> (CHUNK_BITS * part)) & (2**CHUNK_BITS - 1) for part in range(CHUNKS)], 1)
    return Extras(
        torch.pow(0.5, offset + 1).to(torch.float32),
        (lm.chosen(digest, vocab)[:, None] + offset) % vocab,
        hidden.to(torch.float32),
    )


def drafts(
    relayed: Extras, lengths: torch.Tensor, right: torch.Tensor, count: int, powers: torch.Tensor, vocab: int
) -> torch.Tensor:
    """`count` drafts behind the bonus token, of which the first right[i] are true: int64 [batch, count].

    The first comes from the candidates, the others from the digest in the hidden state.
    """
    parts = relayed.hidden_states.to(torch.int64)
    digest = sum(parts[:, part] << (CHUNK_BITS * part) for part in range(CHUNKS))
    token = relayed.topk_index.gather(1, relayed.topk_p.argmax(1, keepdim=True))[:, 0]
    drafted = []
    for step in range(count):
        drafted.append(torch.where(step < right, token, (token + 1) % vocab))
        place = lengths + 1 + step
        digest = digest + lm.mix(lm.pack(token, place)) * _power(powers, place)
        token = lm.chosen(digest, vocab)
    return torch.stack(drafted, 1)


def _power(powers: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    return torch.take(powers, places.clamp(0, powers.shape[0] - 1))


class EagleRelay:
    """Rows of bonus tokens and extras, kept from one step to the next."""

    def __init__(self, rows: int, topk: int) -> None:
        self.bonus = torch.full((rows,), -1, dtype=torch.int64)
        self.lengths = torch.full((rows,), -1, dtype=torch.int64)
        self.kept = Extras(
            torch.zeros((rows, topk)), torch.zeros((rows, topk), dtype=torch.int64), torch.zeros((rows, CHUNKS))
        )

    def stash(self, rows: torch.Tensor, bonus: torch.Tensor, lengths: torch.Tensor, left: Extras) -> None:
        self.bonus[rows], self.lengths[rows] = bonus, lengths
        for buffer, values in zip(self.kept, left, strict=True):
            buffer[rows] = values

    def resolve(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Extras]:
        """Bonus tokens and lengths (int64 [batch]) and extras of these rows."""
        return self.bonus[rows], self.lengths[rows], Extras(*(buffer[rows] for buffer in self.kept))
