"""The `verified_id` relay, as SGLang 0.5.14 ran it for DFlash under the overlap scheduler.

Two values pass from one iteration to the next for each request: its *verified id* (the target's own next
token, later called the bonus token) and its *new sequence length*. The forward leaves them in buffers that
are indexed by slot, the next iteration gathers them back. While a batch keeps its shape the gather is
skipped and the carried tensors are read as they are: *direct carry*.

Definitions follow `FutureMap` (`managers/overlap_utils.py`) and `DFlashDraftInputV2`
(`speculative/dflash_info_v2.py`) of 0.5.14. Widths there: verified ids int32, lengths int64.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

HOST_LENGTHS = ("allocated", "planning", "reserved")


@dataclass
class DraftInput:
    """What one batch's forward hands to its next one (`DFlashDraftInputV2`).

    verified_id: int32 [batch]; new_seq_lens: int64 [batch].
    future_indices: int64 [batch], the slots to gather from; None in a synchronous scheduler.
    allocated, planning, reserved: int32 [batch] on the host, or None where nothing was recorded.
    """

    verified_id: torch.Tensor
    new_seq_lens: torch.Tensor
    future_indices: torch.Tensor | None = None
    direct_carry: bool = True
    allocated: torch.Tensor | None = None
    planning: torch.Tensor | None = None
    reserved: torch.Tensor | None = None

    @classmethod
    def idle(cls, device: torch.device | str) -> DraftInput:
        """The draft input of a batch without requests (`create_idle_input`)."""
        return cls(
            verified_id=torch.empty(0, dtype=torch.int32, device=device),
            new_seq_lens=torch.empty(0, dtype=torch.int64, device=device),
        )

    def filter(self, keep: torch.Tensor) -> None:
        """Keep the rows `keep` (int64 [kept]) in that order (`filter_batch`)."""
        for name in HOST_LENGTHS:
            lengths = getattr(self, name)
            if lengths is not None:
                setattr(self, name, lengths[keep.cpu()])
        if self.future_indices is not None:
            self.future_indices = self.future_indices[keep]
            self.direct_carry = False
            return
        self.verified_id = self.verified_id[keep]
        self.new_seq_lens = self.new_seq_lens[keep]

    def merge(self, other: DraftInput) -> None:
        """Append `other`'s rows (`merge_batch`).

        Raises AssertionError when this side has host lengths or future indices and the other has not.
        """
        for name in HOST_LENGTHS:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None:
                assert theirs is not None, f"merge needs {name} lengths on both sides"
                setattr(self, name, torch.cat([mine, theirs]))
            elif theirs is not None:
                setattr(self, name, theirs)
        if self.future_indices is not None:
            assert other.future_indices is not None, "merge needs future indices on both sides"
            self.future_indices = torch.cat([self.future_indices, other.future_indices])
            self.direct_carry = False
            return
        self.verified_id = torch.cat([self.verified_id, other.verified_id])
        self.new_seq_lens = torch.cat([self.new_seq_lens, other.new_seq_lens])


@dataclass
class VerifiedIdRelay:
    """The buffers between two iterations (`FutureMap`), one row for each slot; row 0 is padding.

    rows: how many rows the request table has (`req_to_token.shape[0]`).
    """

    rows: int
    device: torch.device | str
    verified_id_buf: torch.Tensor | None = None  # made by the first stash that holds a request
    new_seq_lens_buf: torch.Tensor = field(init=False)
    publish_ready: object | None = None

    def __post_init__(self) -> None:
        # A row is written before it is read; -1 makes a row that was not stand out.
        self.new_seq_lens_buf = torch.full((self.rows,), -1, dtype=torch.int64, device=self.device)

    def publish(self, slots: torch.Tensor, new_seq_lens: torch.Tensor) -> None:
        """Leave the lengths (int64 [batch]) in the rows `slots`, and mark them ready."""
        if slots.shape[0] == 0:
            return
        self.new_seq_lens_buf[slots] = new_seq_lens.to(torch.int64)
        if self.publish_ready is None:
            self.publish_ready = torch.get_device_module(self.device).Event()
        self.publish_ready.record()

    def stash(self, slots: torch.Tensor, draft: DraftInput) -> None:
        """Leave the verified ids in the rows `slots`; the first payload decides the buffer's dtype and shape."""
        if slots.shape[0] == 0:
            return
        ids = draft.verified_id
        if self.verified_id_buf is None:
            self.verified_id_buf = torch.full((self.rows, *ids.shape[1:]), -1, dtype=ids.dtype, device=self.device)
        self.verified_id_buf[slots] = ids.to(self.verified_id_buf.dtype)

    def resolve_seq_lens(self, draft: DraftInput | None, current: torch.Tensor) -> torch.Tensor:
        """The lengths (int64 [batch]) that the next forward of this batch sees; `current` where nothing was relayed."""
        if draft is None:
            return current
        if draft.future_indices is not None and not draft.direct_carry:
            if self.publish_ready is not None:
                self.publish_ready.wait()
            return self.new_seq_lens_buf[draft.future_indices]
        # A synchronous scheduler never sets future indices; its draft input carries the lengths too.
        return draft.new_seq_lens

    def resolve(self, draft: DraftInput | None) -> None:
        """Put the verified ids that the next forward of this batch sees into its draft input."""
        if draft is None or draft.direct_carry or draft.future_indices is None:
            return
        if draft.future_indices.shape[0] == 0:
            return
        draft.verified_id = self.verified_id_buf[draft.future_indices]
