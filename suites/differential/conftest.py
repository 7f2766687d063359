"""Which schedules the differential suite runs, from the profile and the options."""

from __future__ import annotations

import pytest

from fixtures.profiles import LEVELS, NIGHTLY_BUDGET, budgeted_chunks, chunks_of_levels, profile_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    config = metafunc.config
    levels = LEVELS[config.getoption("level")]
    if "level" in metafunc.fixturenames:
        metafunc.parametrize("level", levels)
    if "chunk" in metafunc.fixturenames:
        profile = profile_of(config.getoption("profile"), config.getoption("device"))
        wanted = config.getoption("schedules")
        if config.getoption("profile") == "nightly" and wanted is None:
            workers = getattr(config, "workerinput", {}).get("workercount", 1)
            parts = budgeted_chunks(config.getoption("budget") or NIGHTLY_BUDGET, workers, levels)
        else:
            parts = chunks_of_levels(profile, levels, wanted)
        metafunc.parametrize("chunk", parts, ids=[str(part) for part in parts])
    if "replayed" in metafunc.fixturenames:
        metafunc.parametrize("replayed", config.getoption("replay") or ["nothing to replay"])
