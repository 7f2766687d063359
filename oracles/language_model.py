"""A language model that is a hash chain over the KV pool.

Each cache location stores its token and its position. The model's next token is a function of a digest of
the whole context, salted by the request, so one wrong token, position, length, slot or cache location
changes every later token of that request. All arithmetic is wrapping int64: exact, and the same on any
device. `autoregressive` computes the same chain once more in plain integers, one token after the other,
from the request alone: it shares nothing with the batched model but the constants and this definition:

    digest(n) = salt + sum over i < n of mix(kv[i]) * STEP**i        next(n) = mix(digest(n)) >> 32, modulo vocab
"""

from __future__ import annotations

import torch

POSITION_BITS = 20
MULTIPLIERS = (0x5851F42D4C957F2D, 0x2545F4914F6CDD1D)
STEP = 0x1B873593CC9E2D51


def pack(tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """What a cache location stores: int64, the token (below 2**31) above the position (below 2**20)."""
    return (tokens << POSITION_BITS) + positions


def mix(x: torch.Tensor) -> torch.Tensor:
    """Scatter the bits of int64 values; the same for every shape. The result is never negative: bits 32 ... 62 are usable."""
    x = x * MULTIPLIERS[0]
    x ^= x >> 32
    x *= MULTIPLIERS[1]
    x ^= x >> 29
    return x


def step_powers(width: int, device: torch.device | str) -> torch.Tensor:
    """STEP**0 ... STEP**(width - 1) in wrapping int64: int64 [width]."""
    powers, power = [], 1
    for _ in range(width):
        powers.append(_signed(power))
        power = _signed(power * STEP)
    return torch.tensor(powers, dtype=torch.int64, device=device)


def next_tokens(context: torch.Tensor, ends: torch.Tensor, salts: torch.Tensor, powers: torch.Tensor, vocab: int) -> torch.Tensor:
    """The model's choice after each of several prefixes of each request's context.

    context: int64 [batch, width], what the pool stores for each request, in the order of its row in the request table.
    ends: int64 [batch, k], the last position of each prefix, clamped into the width, so that a corrupted length gives
    wrong tokens and not a wild read. salts: int64 [batch]. powers: `step_powers(at least width)`. Returns int64 [batch, k].
    """
    width = context.shape[1]
    digests = (mix(context) * powers[:width]).cumsum(1)
    return chosen(digests.gather(1, ends.clamp(0, width - 1)) + salts[:, None], vocab)


def chosen(digests: torch.Tensor, vocab: int) -> torch.Tensor:
    """The model's choice after contexts with these digests, salt included: int64 of the same shape."""
    return (mix(digests) >> 32) % vocab


def propose(truth: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor, right: torch.Tensor, vocab: int) -> torch.Tensor:
    """The draft model: the true continuation for the first `right[i]` drafts of request i, a wrong token after.

    truth: int64 [requests, length], autoregressive streams. rows: int64 [batch], each request's row in it.
    positions: int64 [batch, block], of the draft block, whose column 0 is the bonus token.
    right: int64 [batch]. Returns int64 [batch, block - 1].
    """
    length = truth.shape[1]
    drafts = torch.take(truth, rows[:, None] * length + positions[:, 1:].clamp(0, length - 1))
    wrong = torch.arange(drafts.shape[1], device=drafts.device) >= right[:, None]
    return (drafts + wrong) % vocab


def autoregressive(prompt: list[int], salt: int, vocab: int, length: int) -> list[int]:
    """The first `length` tokens (prompt and continuation) of a request, one token after the other."""
    tokens, digest, power = list(prompt), salt, 1
    for position in range(length):
        if position == len(tokens):
            tokens.append((_mix(_signed(digest)) >> 32) % vocab)
        digest += _mix((tokens[position] << POSITION_BITS) + position) * power
        power = _signed(power * STEP)
    return tokens[:length]


def _signed(x: int) -> int:
    return ((x + 2**63) & (2**64 - 1)) - 2**63


def _mix(x: int) -> int:
    x = _signed(x * MULTIPLIERS[0])
    x ^= x >> 32
    x = _signed(x * MULTIPLIERS[1])
    return x ^ (x >> 29)
