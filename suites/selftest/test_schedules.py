"""Every schedule that validates is legal, every part of it can be deleted, and nothing else is read as one."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fixtures.draw import GATE, schedules, seeded
from fixtures.judge import check_oracle
from fixtures.lane import Lane
from fixtures.oracle_system import OracleSystem
from fixtures.overlap_loop import OverlapLoop
from fixtures.plan import Plan
from fixtures.schedule import MAX_FILE_BYTES, Schedule, ScheduleError, load, parse
from fixtures.tally import shape_digest

QUIET = settings(
    derandomize=True, deadline=None, database=None, max_examples=60, suppress_health_check=list(HealthCheck)
)


def run_on_oracle(schedule: Schedule) -> None:
    """Runs to the end, its streams are autoregressive and its books balance."""
    plan, oracle = Plan.of(schedule), OracleSystem()
    check_oracle(plan, OverlapLoop(plan, oracle, Lane("cpu"), oracle.produces).run())


def with_one_part_less(draw: st.DrawFn, data: object) -> object:
    """The document with one list element or optional field taken out, or one number lowered, anywhere."""
    if isinstance(data, list) and data:
        place = draw(st.integers(0, len(data) - 1))
        if draw(st.booleans()):
            return data[:place] + data[place + 1 :]
        return data[:place] + [with_one_part_less(draw, data[place])] + data[place + 1 :]
    if isinstance(data, dict):
        inside = sorted(name for name in data if name not in ("version", "id", "point"))
        if inside:
            name = draw(st.sampled_from(inside))
            if draw(st.booleans()):
                return {key: value for key, value in data.items() if key != name}
            return data | {name: with_one_part_less(draw, data[name])}
    if isinstance(data, int) and not isinstance(data, bool) and data > 0:
        return draw(st.sampled_from([0, 1, data // 2, data - 1]))
    return data


@QUIET
@given(st.data())
def test_any_part_can_be_deleted(data: st.DataObject) -> None:
    document = json.loads(data.draw(schedules()).to_json())
    for _ in range(data.draw(st.integers(1, 4))):
        document = data.draw(st.composite(lambda draw, whole=document: with_one_part_less(draw, whole))())
    try:
        schedule = parse(json.dumps(document))
    except ScheduleError:
        return  # a number left its bounds: refused, not run
    run_on_oracle(schedule)


@QUIET
@given(schedules())
def test_documents_round_trip(schedule: Schedule) -> None:
    assert parse(schedule.to_json()) == schedule


def test_nothing_is_a_schedule_too() -> None:
    run_on_oracle(parse('{"version": 1}'))


def test_a_large_schedule_runs() -> None:
    requests = [{"id": i, "prompt": 1 + i % 9, "budget": 40, "accept": [i % 4], "arrive": i // 3} for i in range(200)]
    document = {"version": 1, "run": {"slots": 64}, "requests": requests, "iterations": [{"abort": [7]}] * 500}
    run_on_oracle(parse(json.dumps(document)))


def test_seeded_schedules_are_a_function_of_seed_and_index() -> None:
    assert seeded(5, 17).to_json() == seeded(5, 17).to_json()
    digests = {shape_digest(seeded(seed, index, GATE)) for seed in (1, 2) for index in range(300)}
    assert len(digests) == 600


def test_the_same_schedule_comes_with_and_without_stalls() -> None:
    for index in range(60):
        stalled = seeded(1, index, stalls=50)
        assert any(turn.stalls for turn in stalled.iterations)
        calm = tuple(turn.model_copy(update={"stalls": ()}) for turn in stalled.iterations)
        assert stalled.model_copy(update={"iterations": calm}) == seeded(1, index)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "document: not JSON"),
        ('{"version": 1, "requests": [{"id": 1', "document: not JSON"),
        ("[1]", "document: an object is wanted"),
        ("{}", "version: 'none' is not known"),
        ('{"version": 2}', "version: '2' is not known, this suite reads 1"),
        ('{"version": true}', "version: 'True' is not known"),
        ('{"version": 1.0}', "version: '1.0' is not known, this suite reads 1"),
        ('{"version": 1, "version": 1}', "document: the key 'version' stands twice in one object"),
        ('{"version": 1, "run": {"salt": 1, "salt": 2}}', "document: the key 'salt' stands twice in one object"),
        ('{"version": 1, "%s": 1}' % ("k" * 5000), "kkkk': Extra inputs are not permitted"),
        ('{"version": 1, "a\\nb\\u001b[31m": 1}', r"'a\nb\x1b[31m': Extra inputs are not permitted"),
        ('{"version": 1, "run": {"block_size": 0}}', "run.block_size: Input should be greater than or equal to 1"),
        ('{"version": 1, "run": {"slots": 2.5}}', "run.slots: Input should be a valid integer"),
        ('{"version": 1, "requests": [{"id": 1}, {"id": 1}]}', "requests[1].id: 1 names an earlier request already"),
        ('{"version": 1, "requests": [{}]}', "requests[0].id: Field required"),
        ('{"version": 1, "iterations": [{"abort": ["__import__(\'os\')"]}]}', "iterations[0].abort[0]: Input should be"),
        ('{"version": 1, "surprise": 1}', "surprise: Extra inputs are not permitted"),
        ('{"version": 1, "run": {"salt": NaN}}', "run.salt"),
        ("[" * 200_000, "document: not JSON"),
        ('{"version": 1, "x": "' + "a" * MAX_FILE_BYTES + '"}', f"at most {MAX_FILE_BYTES} are read"),
        ('{"version": 1, "requests": [%s]}' % ",".join('{"id": %d, "budget": 8192}' % i for i in range(60)), "requests: 491580 tokens"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_bad_documents_are_refused_with_the_field(text: str, reason: str, tmp_path) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScheduleError) as refused:
        load(file)
    assert reason in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400


def test_a_byte_order_mark_is_passed_over(tmp_path) -> None:
    file = tmp_path / "marked.json"
    file.write_text('{"version": 1}', encoding="utf-8-sig")
    assert load(file) == Schedule()


def test_unreadable_files_are_refused(tmp_path) -> None:
    for name in (tmp_path, tmp_path / "absent.json"):
        with pytest.raises(ScheduleError, match="cannot be read"):
            load(name)
    binary = tmp_path / "binary.json"
    binary.write_bytes(bytes(range(256)))
    with pytest.raises(ScheduleError, match="not JSON"):
        load(binary)
