"""What an n-gram corpus is asked with and drafts, and what is relayed for it: the tokens that the last step accepted, and how many.

The corpus here knows each request's continuation and gives as much of it as it should, then wrong tokens. Definitions
follow SGLang 0.5.18's `NGRAMWorker`, greedy.
"""

from __future__ import annotations

import torch

from oracles.eagle import Tree

DEPTH = 8  # tokens of a context that can match: SGLang's default is 18, and few contexts here are longer than that


def tails(contexts: list[list[int]], depth: int = DEPTH) -> torch.Tensor:
    """The last tokens of each context, -1 ahead of one that is shorter: int64 [batch, depth]."""
    return torch.tensor([[-1] * (depth - len(context)) + context[-depth:] for context in contexts], dtype=torch.int64)


def draft(following: torch.Tensor, right: torch.Tensor, branching: bool, vocab: int) -> Tree:
    """A chain of drafts behind the last token; branching: with a wrong token beside its first one, drafted before it.

    following: int64 [batch, count], the true continuation. right: int64 [batch], how many drafts of the chain are true.
    vocab: 3 at least.
    """
    batch, count = following.shape
    branching = branching and count > 1
    place = torch.arange(count)
    chain = torch.where(place < right[:, None], following, (following + 1) % vocab)
    if not branching:
        return Tree(chain, (place + 1).expand(batch, -1), (place - 1).expand(batch, -1))
    beside = (following[:, :1] + 2) % vocab
    depths, parents = place.clamp(min=1), torch.where(place < 2, -1, place - 1)
    return Tree(torch.cat([beside, chain[:, :-1]], 1), depths.expand(batch, -1), parents.expand(batch, -1))


class NgramRelay:
    """Rows of accepted tokens, -1 behind the last one, and of lengths without it, kept from one step to the next."""

    def __init__(self, rows: int, block_size: int) -> None:
        self.tokens = torch.full((rows, block_size), -1, dtype=torch.int64)
        self.lengths = torch.full((rows,), -1, dtype=torch.int64)

    def stash(self, rows: torch.Tensor, tokens: torch.Tensor, lengths: torch.Tensor) -> None:
        self.tokens[rows], self.lengths[rows] = tokens, lengths

    def resolve(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.tokens[rows], self.lengths[rows]
