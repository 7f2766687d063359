"""What `artifacts/summary.json` holds: the model behind `summary.schema.json`.

    python -m reports.summary > reports/summary.schema.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fixtures.judge import RANKS

SCHEMA_FILE = Path(__file__).with_name("summary.schema.json")
Count = Annotated[int, Field(ge=0)]


class SummaryError(ValueError):
    """A file that is no summary of a run; says why, in one line."""

MEANINGS = {
    "PASS": "no difference found",
    "known": "no difference found but reviewed ones of SGLang",
    "DIVERGED": "the SUT does not do what the old relay did",
    RANKS: "two ranks of tensor parallelism do not do the same, though neither left the oracle",
    "ERROR": "the SUT raised, hung or died, or the suite could not run it",
    "INTERRUPTED": "stopped; what follows is what was seen so far",
    "SKIPPED": "nothing could run here",
    "INCOMPLETE": "no difference found, but the run did not exercise enough to say PASS",
}


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SutFacts(_Part):
    """The SGLang under test: the folder that holds `sglang`, what it is, and a digest of its relay files."""

    root: str
    release: Annotated[str, Field(description="empty for a checkout, whose release nothing tells")]
    commit: str
    digest: str
    contract: Literal["verified_id", "bonus_tokens"]
    layer: Annotated[str, Field(description="folder with the transformers it pins, empty where the installed one fits")]
    source: Annotated[str, Field(description="digest of all Python files in the folders that a run imports from")] = ""


class Checks(_Part):
    """Tests: how many passed, the ids of those that failed or could not run, and reasons of skips with counts."""

    passed: Count
    failed: list[str]
    errors: list[str]
    skipped: dict[str, Count]


class Machine(_Part):
    """Where and when it ran. gpu: its name, empty without `--device cuda`."""

    date: Annotated[str, Field(description="of the run's end, UTC, as YYYY-MM-DD")]
    python: str
    torch: str
    triton: str
    gpu: str
    cores: Count


class Failure(BaseModel):
    """One divergence. iteration, request, slot: -1 where the run as a whole is meant.

    Failures of one check carry more: the seed and index that drew the schedule, and where it was saved.
    """

    model_config = ConfigDict(extra="allow")

    verdict: Literal["DIVERGED", "RANKS DIVERGED", "ERROR"]
    field: str
    operation: str
    iteration: int
    request: int
    slot: int
    expected: str
    actual: str
    history: Annotated[list[str], Field(description="operations of the last iterations that touched the slot, oldest first")]
    line: Annotated[str, Field(description="all of it in one line")]
    mode: str = ""
    schedule: Annotated[str, Field(description="path of the schedule that shows it")] = ""
    seed: int | None = None
    index: int | None = None


class Summary(BaseModel):
    """One run as data. Newer suites may add fields; `summary_version` changes when one goes or changes its meaning."""

    model_config = ConfigDict(extra="allow")

    summary_version: Literal[1]
    suite_version: str
    verdict: Literal["PASS", "known", "DIVERGED", "RANKS DIVERGED", "ERROR", "INCOMPLETE", "INTERRUPTED", "SKIPPED"]
    sut: SutFacts
    changed: Annotated[list[str], Field(description="Python files that differ from the nearest release, where that is on the machine")] = []
    device: str
    machine: Machine | None = None
    stood_in_for: Annotated[list[str], Field(description="what could not exist on the machine and was replaced")]
    profile: str
    seed: int
    seconds: Annotated[float, Field(ge=0)]
    checks: Checks
    known: Annotated[dict[str, str], Field(description="reviewed findings that were met: id and reason")]
    incomplete: Annotated[list[str], Field(description="what the run did not exercise enough to say PASS")]
    partial: Annotated[list[str], Field(description="what was left out of the profile on request")] = []
    median_requests: Annotated[int, Field(ge=0, description="requests that held a slot at once, median over iterations")]
    schedules: Count
    iterations: Count
    events: Annotated[dict[str, Count], Field(description="relay events by name, see fixtures/events.py")]
    pairs: Annotated[dict[str, Count], Field(description="ordered pairs of events within two iterations, `first>second`")]
    modes: Annotated[dict[str, Count], Field(description="iterations by scheduler and by debug mode")]
    live: Annotated[dict[str, Count], Field(description="iterations by how many requests held a slot")]
    shares: Annotated[dict[str, float], Field(description="seconds by kind of work, of the schedules that were timed")]
    failures: list[Failure]


def read_summary(file: Path) -> Summary:
    """Raises SummaryError."""
    try:
        return Summary.model_validate_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SummaryError(f"{file}: cannot be read ({error.strerror})") from None
    except (ValidationError, UnicodeDecodeError) as error:
        first = error.errors(include_url=False)[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
        where = ".".join(map(str, first["loc"])) or "document"
        raise SummaryError(f"{file}: {where}: {first['msg']}") from None


def schema_text() -> str:
    return json.dumps(Summary.model_json_schema(), indent=2) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
