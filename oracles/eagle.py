"""What an EAGLE draft leaves for the next step beside the bonus token, and the tree that it drafts from it.

The draft is a hash chain of its own. Its hidden state is the digest of the whole context, and its scores are a
function of the digest: a few candidates, the true next token among them where the draft is to be right. So a wrong
row of anything that is relayed shows in what is drafted. Definitions follow SGLang 0.5.14's `EagleDraftInput`,
`EagleDraftWorker.draft_forward` and `EAGLEWorkerV2.verify`, greedy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

from oracles import language_model as lm

CHUNKS, CHUNK = 4, torch.int16  # a digest of 64 bits in float32, which is exact below 2**24
GAP_BITS = 20  # of the distance between two scores: sums of eight are exact in float32
DISAGREEMENT = 0x2545F4914F6CDD1D  # what a difference of hidden state and the draft's own pool is multiplied by
NEVER = -1e4  # the score of a token that is no candidate: its probability is exactly 0


class Extras(NamedTuple):
    """topk_p: float32 [batch, topk]. topk_index: int64 [batch, topk]. hidden_states: float32 [batch, CHUNKS].

    draft_probs: float32 [batch, vocab], what the first draft was drawn from, where drafts are sampled.
    index_seeds: int32 [batch, CHUNKS], what sparse attention looked at, where the next step begins with that.
    """

    topk_p: torch.Tensor
    topk_index: torch.Tensor
    hidden_states: torch.Tensor
    draft_probs: torch.Tensor | None = None
    index_seeds: torch.Tensor | None = None


class Tree(NamedTuple):
    """Drafted tokens, how deep each lies below the bonus token (1 is its child), and the place of its parent, -1 for the
    bonus token: int64 [batch, count] each, in the order in which they were drafted."""

    tokens: torch.Tensor
    depths: torch.Tensor
    parents: torch.Tensor


class Accepted(NamedTuple):
    """accept_lens: int64 [batch]. tokens: int64 [batch, deepest + 1], accepted drafts and the bonus token, -1 behind it.
    bonus: int64 [batch]."""

    accept_lens: torch.Tensor
    tokens: torch.Tensor
    bonus: torch.Tensor


def part(tokens: torch.Tensor, positions: torch.Tensor, powers: torch.Tensor) -> torch.Tensor:
    """What tokens at these positions add to a digest; int64 of the same shape."""
    return lm.mix(lm.pack(tokens, positions)) * torch.take(powers, positions.clamp(0, powers.shape[0] - 1))


def digests(
    kv: torch.Tensor,
    locations: torch.Tensor,
    lengths: torch.Tensor,
    bonus: torch.Tensor,
    salts: torch.Tensor,
    powers: torch.Tensor,
) -> torch.Tensor:
    """Of each context of `lengths` tokens in the pool and the bonus token behind it: int64 [batch].

    kv: int64 [locations of the pool]. locations: int64 [batch, width], the row of each request in the request table.
    lengths, bonus, salts: int64 [batch]. powers: `language_model.step_powers(at least width)`.
    """
    width = locations.shape[1]
    inside = torch.arange(width, device=lengths.device) < lengths[:, None]
    context = (lm.mix(torch.take(kv, locations)) * powers[:width] * inside).sum(1)
    return salts + context + part(bonus, lengths, powers)


def hidden_states(digest: torch.Tensor) -> torch.Tensor:
    """int64 [n] as float32 [n, CHUNKS]."""
    return digest.contiguous().view(CHUNK).view(-1, CHUNKS).to(torch.float32)


def digest_of(hidden: torch.Tensor) -> torch.Tensor:
    """The inverse of `hidden_states`: int64 [n]."""
    return hidden.to(CHUNK).contiguous().view(torch.int64)[:, 0]


def scores(digest: torch.Tensor, right: torch.Tensor, topk: int, vocab: int) -> torch.Tensor:
    """The draft's logits after contexts with these digests: float32 [n, vocab], NEVER for all but `topk` candidates.

    right: bool [n], whether the true next token is a candidate; then it is the likeliest, or now and then the second one.
    vocab: more than topk.
    """
    logits = digest.new_full((digest.shape[0], vocab), NEVER, dtype=torch.float32)
    first = lm.chosen(digest, vocab)[:, None] + (~right)[:, None]
    if topk == 1:
        return logits.scatter_(1, first % vocab, 0.0)
    rank = torch.arange(topk, device=digest.device)
    second = (digest >> 7) & 3 == 0
    candidates = (first + (rank - second[:, None].to(torch.int64)) % topk) % vocab
    gaps = (lm.mix(digest[:, None] + rank) & (2**GAP_BITS - 1)) + 2 ** (GAP_BITS - 2)
    gaps[:, 0] = 0
    return logits.scatter_(1, candidates, gaps.cumsum(1).to(torch.float32) * -(0.5**GAP_BITS))


class Ranking(NamedTuple):
    """How a draft ranks tokens. chances: probabilities of float32 logits, [n, vocab] both.

    likeliest: of values [n, any] and a count, the largest values and their places, the largest first: float32 and int64 [n, count].
    """

    chances: Callable[[torch.Tensor], torch.Tensor]
    likeliest: Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]


def softmax(logits: torch.Tensor) -> torch.Tensor:
    return torch.softmax(logits, dim=-1)


def largest(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    found = torch.topk(values, count, dim=-1)
    return found.values, found.indices


def linear(logits: torch.Tensor) -> torch.Tensor:
    """Numbers in the same order that are exact in float32, so that a GPU and a CPU have the same bits: float32 [n, vocab]."""
    return (1 + logits / 16).clamp(min=0)


def first_of_the_largest(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of equal values the one in front comes first, which `torch.topk` leaves open."""
    found = torch.sort(values, dim=-1, descending=True, stable=True)
    return found.values[..., :count].contiguous(), found.indices[..., :count].contiguous()


AS_SGLANG = Ranking(softmax, largest)
ALIKE = Ranking(linear, first_of_the_largest)
"""As SGLang's draft ranks; and so that every device gives the same bits and the same order."""


def index_seeds(digest: torch.Tensor) -> torch.Tensor:
    """int64 [n] as int32 [n, CHUNKS], otherwise than in hidden states."""
    return hidden_states(~digest).to(torch.int32)


def digest_of_seeds(seeds: torch.Tensor) -> torch.Tensor:
    """The inverse of `index_seeds`: int64 [n]."""
    return ~digest_of(seeds)


def extras(
    digest: torch.Tensor,
    right: torch.Tensor,
    topk: int,
    vocab: int,
    draft_probs: bool = False,
    seeds: bool = False,
    ranking: Ranking = AS_SGLANG,
) -> Extras:
    """What the draft leaves behind after contexts with these digests; right: as `scores` takes it.

    draft_probs, seeds: whether those are left as well. With one candidate a draw can only give that one.
    """
    chances = ranking.chances(scores(digest, right, topk, vocab))
    return Extras(
        *ranking.likeliest(chances, topk),
        hidden_states(digest),
        chances if draft_probs else None,
        index_seeds(digest) if seeds else None,
    )


def draft(
    relayed: Extras,
    context: torch.Tensor,
    lengths: torch.Tensor,
    right: torch.Tensor,
    deepest: int,
    count: int,
    powers: torch.Tensor,
    vocab: int,
    ranking: Ranking = AS_SGLANG,
) -> Tree:
    """The `count` likeliest of the tokens that are drafted down to `deepest`, from what the last step left behind.

    Each level keeps as many of its tokens as candidates were relayed, and each of those has as many children.
    context: int64 [batch], digests of the contexts in the draft's pool, the bonus token included; where hidden states say otherwise
    the draft believes neither. right: int64 [batch], how many levels have the true token among their candidates, the relayed ones counted.
    lengths: int64 [batch], of contexts without the bonus token.
    """
    batch, topk = relayed.topk_index.shape
    score, tokens = relayed.topk_p, relayed.topk_index
    device = lengths.device
    digest = digest_of(relayed.hidden_states)[:, None].expand(batch, topk)
    doubt = digest - context[:, None]
    all_scores, all_tokens = [score], [tokens]
    depths = [torch.ones(topk, dtype=torch.int64, device=device)]
    parents = [torch.full((batch, topk), -1, device=device)]
    places = torch.arange(topk, device=device).expand(batch, topk)  # of those that have children, among all
    for level in range(1, deepest):
        at = (lengths + level)[:, None].expand(batch, topk)
        digest = digest + part(tokens, at, powers) + doubt * DISAGREEMENT
        # In a tree later steps write where no other branch reads, so only a chain looks again.
        doubt = doubt * (1 + DISAGREEMENT) if topk == 1 else doubt * 0
        true = (level < right)[:, None].expand(batch, topk).reshape(-1)
        chances, children = ranking.likeliest(ranking.chances(scores(digest.reshape(-1), true, topk, vocab)), topk)
        expanded = (score[:, :, None] * chances.view(batch, topk, topk)).flatten(1)
        children = children.view(batch, topk * topk)
        first = sum(part.shape[1] for part in all_tokens)
        all_scores.append(expanded)
        all_tokens.append(children)
        depths.append(torch.full((topk * topk,), level + 1, device=device))
        parents.append(places.repeat_interleave(topk, 1))
        score, best = ranking.likeliest(expanded, topk)
        tokens, digest, places = children.gather(1, best), digest.gather(1, best // topk), first + best
    kept = ranking.likeliest(torch.cat(all_scores, 1), count)[1].sort(1).values
    above = torch.cat(parents, 1).gather(1, kept)
    return Tree(
        torch.cat(all_tokens, 1).gather(1, kept),
        torch.cat(depths)[kept],
        torch.where(above < 0, -1, torch.searchsorted(kept, above)),
    )


def verify(tree: Tree, chosen: torch.Tensor) -> Accepted:
    """Accept drafts as long as the tree goes on with the target's own next token.

    chosen: int64 [batch, deepest + 1], what the target chooses behind the bonus token, and behind that, and so on.
    """
    same = tree.tokens == chosen.gather(1, tree.depths - 1)
    from_bonus, above = tree.parents < 0, tree.parents.clamp(min=0)
    path = same & from_bonus
    for _ in range(chosen.shape[1] - 2):
        path = same & (from_bonus | path.gather(1, above))
    accept_lens = path.sum(1)
    kept = torch.arange(chosen.shape[1], device=chosen.device) <= accept_lens[:, None]
    return Accepted(accept_lens, torch.where(kept, chosen, -1), chosen.gather(1, accept_lens[:, None])[:, 0])


class EagleRelay:
    """Rows of bonus tokens and extras, kept from one step to the next."""

    def __init__(self, rows: int) -> None:
        self.bonus = torch.full((rows,), -1, dtype=torch.int64)
        self.lengths = torch.full((rows,), -1, dtype=torch.int64)
        self.kept: list[torch.Tensor | None] = []

    def stash(self, rows: torch.Tensor, bonus: torch.Tensor, lengths: torch.Tensor, left: Extras) -> None:
        self.bonus[rows], self.lengths[rows] = bonus, lengths
        if not self.kept:
            count = self.bonus.shape[0]
            self.kept = [values if values is None else values.new_zeros((count, *values.shape[1:])) for values in left]
        for buffer, values in zip(self.kept, left, strict=True):
            if buffer is not None:
                buffer[rows] = values

    def resolve(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Extras]:
        """Bonus tokens and lengths (int64 [batch]) and extras of these rows."""
        kept = (None if buffer is None else buffer[rows] for buffer in self.kept)
        return self.bonus[rows], self.lengths[rows], Extras(*kept)
