"""Two ranks beside each other are awake: they show what each of them alone does not."""

from __future__ import annotations

import pytest

from fixtures.draw import seeded
from fixtures.faults import CATALOGUE
from fixtures.faults.fault import Fault
from fixtures.judge import RANKS
from fixtures.ranks import disagreement

SEED, WITHIN = 1, 24
FAULTS = [fault for fault in CATALOGUE.values() if fault.seen_in == "ranks"]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_only_ranks_show_what_depends_on_the_process(fault: Fault, runner_for) -> None:
    ranks = [runner_for(kind, "scheduler") for kind in ("release", "other_rank")]
    for runner in ranks:
        assert runner.job("fault", fault=fault.name, seed=SEED, start=0, count=WITHIN)["caught"] is None, "the oracle saw it"
    digests = [
        runner.job("planted", fault=fault.name, job="digests", arguments={"seed": SEED, "start": 0, "count": WITHIN})
        for runner in ranks
    ]
    different = [index for index in range(WITHIN) if digests[0][index] != digests[1][index]]
    assert different
    document = seeded(SEED, different[0]).to_json()
    seen = [runner.job("planted", fault=fault.name, job="seen", arguments={"document": document}) for runner in ranks]
    found = disagreement(*seen)
    assert found.verdict == RANKS
    assert found.iteration >= 0
    assert "rank 0 got" in found.line()
    assert "rank 1 got" in found.line()


def test_a_value_that_differs_is_named_with_its_request() -> None:
    zero = {
        "entries": [[4, "decode", [7, 2], [3, 5]]],
        "marks": [[0, "bonus_tokens", "torch.int64", [2]]],
        "values": [[11, 71]],
        "streams": {},
        "books": [],
        "stopped": "",
    }
    assert disagreement(zero, zero) is None
    found = disagreement(zero, zero | {"values": [[11, 13]]})
    assert found.line() == "iteration 4, request 2, slot 5: bonus_tokens after resolve inputs: rank 0 got 71, rank 1 got 13"
    swapped = disagreement(zero, zero | {"entries": [[4, "decode", [2, 7], [5, 3]]]})
    assert (swapped.verdict, swapped.field, swapped.iteration) == (RANKS, "batch", 4)


@pytest.mark.parametrize("requests", [1, 3])
def test_a_value_of_the_whole_batch_names_no_request(requests: int) -> None:
    zero = {
        "entries": [[4, "decode", [7, 2, 9][:requests], [3, 5, 1][:requests]]],
        "marks": [[0, "seq_lens_sum", "torch.int64", [1]]],
        "values": [[11]],
        "streams": {},
        "books": [],
        "stopped": "",
    }
    found = disagreement(zero, zero | {"values": [[13]]})
    assert found.line() == "iteration 4: seq_lens_sum after resolve lengths: rank 0 got 11, rank 1 got 13"
