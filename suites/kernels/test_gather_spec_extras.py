"""SGLang's fused gather takes the rows that the oracle takes, bit for bit.

Behaviour: `gather_spec_extras`, first in 0.5.14 (triton_ops/gather_spec_extras.py), called by
`FutureMap.resolve_future`. Indices may have any layout. Buffers are contiguous here, as they are there: every
release says so in a comment and relies on it.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fixtures.draw import INTERPRETED
from fixtures.launch import SIGNATURES, Layout
from fixtures.sglang_relay.kernels import GATHER

ROWS = 9
INDICES = [7, 2, 2, 8, 0, 5, 7]
WIDTHS = (1, 3, 8, 1025)  # a program copies 1024 columns at most
SPECIAL_BITS = {
    torch.float32: [0x7FC00001, -0x3FFFFF, 0x7F800001, -(2**31), 0x7F800000, 1],  # nan, -nan, signalling, -0.0, inf
    torch.bfloat16: [0x7FC1, -0x3F, 0x7F81, -(2**15), 0x7F80, 1],
    torch.float16: [0x7E01, -0x1FF, 0x7C01, -(2**15), 0x7C00, 1],
}
AS_INTEGER = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}


@pytest.fixture
def buffer():
    """A contiguous buffer in poisoned memory, with bits of every kind, no two rows alike."""

    def buffer(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        _, tensor = Layout.plain(dtype, shape).make("cpu")
        size = tensor.numel() * tensor.element_size()
        noise = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(size))
        tensor.copy_(noise.view(dtype).view(shape))
        if dtype in SPECIAL_BITS:
            special = torch.tensor(SPECIAL_BITS[dtype], dtype=AS_INTEGER[dtype])[: tensor.numel()]
            tensor.view(AS_INTEGER[dtype]).view(-1)[-len(special) :] = special
        return tensor

    return buffer


@pytest.fixture
def check(launch):
    """Gather as the oracle does."""

    def check(indices: torch.Tensor, *buffers: torch.Tensor | None) -> None:
        launch(GATHER, dict(zip(SIGNATURES[GATHER].tensors, (indices, *buffers), strict=True)), {})

    return check


def rows(indices: list[int], dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Indices, and one more behind them, so that a kernel that goes on to it shows in what it writes."""
    return torch.tensor([*indices, 1], dtype=dtype)[: len(indices)]


@pytest.fixture
def buffers(buffer):
    """The relay's four: top-k probabilities and ids, bonus tokens (one for each slot), hidden states."""

    def buffers(topk: int = 3, hidden: int | None = 8, dtype: torch.dtype = torch.bfloat16):
        return (
            buffer((ROWS, topk), torch.float32),
            buffer((ROWS, topk), torch.int64),
            buffer((ROWS,), torch.int64),
            hidden and buffer((ROWS, hidden), dtype),
        )

    return buffers


@pytest.mark.parametrize("dtype", SPECIAL_BITS)
@pytest.mark.parametrize("hidden", WIDTHS)
def test_hidden_states_of_every_width_and_dtype(check, buffers, hidden, dtype):
    check(rows(INDICES), *buffers(hidden=hidden, dtype=dtype))


@pytest.mark.parametrize("topk", WIDTHS)
@pytest.mark.parametrize("hidden", [None, 8])
def test_absent_hidden_states_stay_absent(check, buffers, topk, hidden):
    check(rows(INDICES), *buffers(topk, hidden))


@pytest.mark.parametrize("first", range(len(WIDTHS)))
def test_the_buffers_may_have_different_widths(check, buffer, first):
    widths = [*WIDTHS[first:], *WIDTHS[:first]]
    dtypes = (torch.float32, torch.int64, torch.int64, torch.float16)
    check(
        rows(INDICES),
        *(buffer((ROWS, width), dtype) for width, dtype in zip(widths, dtypes, strict=True)),
    )


@pytest.mark.parametrize("hidden_dtype", [None, *SPECIAL_BITS])
def test_one_dimensional_buffers(check, buffer, hidden_dtype):
    vectors = [buffer((ROWS,), dtype) for dtype in (torch.float32, torch.int64, torch.int64)]
    check(rows(INDICES), *vectors, hidden_dtype and buffer((ROWS,), hidden_dtype))


def test_int32_tokens_stay_int32(check, buffer):
    """The relay's buffers take the dtype of the payload that came first."""
    check(rows(INDICES), *(buffer((ROWS, 3), torch.int32) for _ in range(3)), None)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 20])
def test_every_batch_size(check, buffers, size):
    check(rows([row * 4 % ROWS for row in range(size)]), *buffers())


@pytest.mark.parametrize(
    "indices", [[0], [ROWS - 1], [3] * 4, list(range(ROWS))[::-1]], ids=["first", "last", "repeated", "backwards"]
)
def test_rows_may_repeat_and_come_in_any_order(check, buffers, indices):
    check(rows(indices), *buffers())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_indices_may_have_any_layout(check, buffers, layout, dtype):
    check(layout(rows(INDICES, dtype)), *buffers())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("hidden", [None, 8])
def test_an_empty_batch_gathers_no_rows(check, buffers, dtype, hidden):
    check(rows([], dtype), *buffers(hidden=hidden))


@INTERPRETED
@given(
    indices=st.lists(st.integers(0, ROWS - 1), max_size=6),
    index_dtype=st.sampled_from([torch.int32, torch.int64]),
    topk=st.integers(1, 9),
    hidden=st.none() | st.integers(1, 40),
    dtype=st.sampled_from(list(SPECIAL_BITS)),
)
def test_any_batch(check, buffers, indices, index_dtype, topk, hidden, dtype):
    check(rows(indices, index_dtype), *buffers(topk, hidden, dtype))
