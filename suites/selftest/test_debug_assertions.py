"""SGLang's own debug assertions really fire in the debug runner, and are reported as a divergence."""

from __future__ import annotations

import pytest

from fixtures.broken_copy import Edit
from fixtures.sut import OVERLAP_UTILS


@pytest.mark.new_contract
def test_lost_stash_fires_an_assertion(broken_sut, runner_on) -> None:
    """A row gathered twice without a stash in between: the oracle sees a wrong token, debug mode its own -1."""
    lost = Edit(
        OVERLAP_UTILS,
        "            self.output_tokens_buf[indices] = payload.bonus_tokens.to(\n",
        "            self.output_tokens_buf[indices[:1]] = payload.bonus_tokens[:1].to(\n",
    )
    broken = broken_sut(lost)
    fired = runner_on(broken, debug=True).seeded(seed=1, start=0, count=8).failures
    assert {failure["verdict"] for failure in fired} == {"DIVERGED"}
    assert any(failure["field"] == "assertion" for failure in fired), [failure["line"] for failure in fired]
    silent = runner_on(broken, debug=False).seeded(seed=1, start=0, count=8).failures
    assert silent
    assert not any(failure["field"] == "assertion" for failure in silent)
