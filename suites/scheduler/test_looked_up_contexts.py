"""N-gram speculation looks a request's context up in its corpus: each token stands there once, whatever was launched between two decodes."""

from __future__ import annotations

import pytest

from fixtures.schedule import Iteration, Request, Run, Schedule
from fixtures.sglang_scheduler.run import NGRAM

FINDING = "n-gram's worker looks up contexts in which the tokens accepted last stand twice"
OVERLAPPED, IN_TURN = (Run(block_size=3, slots=2, ngram=True, overlap=overlap) for overlap in (True, False))
# The result of a request's last step is processed before its next one where a prefill comes between: of a prompt that
# arrives while it decodes, and where two prompts come behind each other.
ARRIVES = (Request(id=0, prompt=5, budget=12, accept=(1,)), Request(id=1, prompt=4, budget=4, arrive=4))
BEHIND = (Request(id=0, prompt=5, budget=4), Request(id=1, prompt=4, budget=4))
ONE_BY_ONE = (Iteration(admit=1), Iteration(admit=1))


def test_tokens_stand_once_in_what_is_looked_up(levels: tuple[str, ...], review, looked_for, runner_for) -> None:
    if "scheduler" not in levels:
        pytest.skip("SGLang's scheduler is not run: --level relay")
    runner = runner_for("release", "scheduler")

    def looked_up(run: Run, requests: tuple[Request, ...], iterations: tuple[Iteration, ...] = ()) -> dict | None:
        document = Schedule(run=run, requests=requests, iterations=iterations).to_json()
        seen = runner.job("less_kind", document=document, conditions={"spliced_once": False})
        if not seen["also"].get(NGRAM):
            pytest.skip("n-gram speculation has no relay before 0.5.18")
        return seen["divergence"]

    in_turn, overlapped = ([looked_up(run, ARRIVES), looked_up(run, BEHIND, ONE_BY_ONE)] for run in (IN_TURN, OVERLAPPED))
    lines = looked_for("looked-up contexts", in_turn + overlapped, lambda each: each["field"] == "context_lens")
    if any(in_turn):
        pytest.fail(f"{FINDING}, without overlap as well: {lines[0]}", pytrace=False)
    review("looked-up contexts", FINDING, lines)
