"""One speculative step of DFlash around its two model forwards: lay out the draft block, then accept.

Definitions follow 0.5.14's `dflash_prepare_block` and `dflash_accept_bonus`, and the eager path of
`DFlashWorkerV2.forward_batch_generation` where the two agree.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class DraftBlock(NamedTuple):
    """block_ids, positions, cache_locs: int64 [batch, block]."""

    block_ids: torch.Tensor
    positions: torch.Tensor
    cache_locs: torch.Tensor


class Accepted(NamedTuple):
    """accept_lens, commit_lens: int32 [batch]; bonus: [batch]; out_tokens: int64 [batch, block]; new_seq_lens: int64 [batch]."""

    accept_lens: torch.Tensor
    commit_lens: torch.Tensor
    bonus: torch.Tensor
    out_tokens: torch.Tensor
    new_seq_lens: torch.Tensor


def draft_block(
    bonus: torch.Tensor,
    seq_lens: torch.Tensor,
    slots: torch.Tensor,
    req_to_token: torch.Tensor,
    block_size: int,
    mask_token: int,
) -> DraftBlock:
    """Lay out [bonus, mask, mask, ...] at the positions that follow each request's context.

    bonus: int [batch]; seq_lens, slots: int64 [batch]; req_to_token: int [rows, width].
    Positions are never clamped; a position beyond the table's width gets cache location 0, the padding.
    """
    batch, width = seq_lens.shape[0], req_to_token.shape[1]
    block_ids = bonus.new_full((batch, block_size), mask_token, dtype=torch.int64)
    block_ids[:, 0] = bonus
    positions = seq_lens[:, None] + torch.arange(block_size, device=seq_lens.device)
    flat = slots[:, None] * width + positions.clamp(0, width - 1)
    cache_locs = torch.take(req_to_token, flat).to(torch.int64) * (positions < width)
    return DraftBlock(block_ids, positions, cache_locs)


def accept(candidates: torch.Tensor, target_top1: torch.Tensor, seq_lens: torch.Tensor) -> Accepted:
    """Accept drafts while they equal the target's own choice one place earlier.

    candidates: int64 [batch, block], the bonus token and then the drafts.
    target_top1: int64 [batch, block], the target's choice after each candidate.
    out_tokens holds the accepted drafts, then the new bonus token, then what was drafted, with 0 at the end.
    """
    matches = candidates[:, 1:] == target_top1[:, :-1]
    accept_lens = matches.cumprod(1).sum(1)  # int64, as the place to read the bonus token from
    bonus = target_top1.gather(1, accept_lens[:, None])
    out_tokens = torch.cat([candidates[:, 1:], torch.zeros_like(bonus)], dim=1).scatter_(1, accept_lens[:, None], bonus)
    commit_lens = (accept_lens + 1).to(torch.int32)
    return Accepted(accept_lens.to(torch.int32), commit_lens, bonus[:, 0], out_tokens, seq_lens + commit_lens)


def gather_spec_extras(indices: torch.Tensor, *buffers: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    """Row `indices[i]` of every buffer becomes row i of its output; an absent buffer stays absent."""
    return tuple(None if buffer is None else buffer[indices] for buffer in buffers)
