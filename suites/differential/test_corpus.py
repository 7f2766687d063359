"""The same promise over kept schedules, each of which showed something once. Runs before anything is drawn."""

from __future__ import annotations

import pytest

from fixtures.corpus import Kept, load_corpus


@pytest.mark.parametrize("kind", ["release", "debug"])
@pytest.mark.parametrize("kept", load_corpus(), ids=lambda kept: kept.name)
def test_kept_schedules_are_bitwise_identical(kept: Kept, kind: str, level: str, runner_for, tally) -> None:
    ran = runner_for(kind, level).schedule(kept.schedule().to_json())
    tally.merge(ran.to_dict() | {"shapes": []})  # each runs more than once: at each level, without and with debug assertions
    for failure in tally.failures:
        pytest.fail(f"{failure['verdict']} {failure['line']}\n  kept because {kept.why}\n  schedule: {kept.file()}", pytrace=False)
