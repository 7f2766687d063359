"""The page of a run fits a desk and a phone in a real browser, needs nothing else, and its data has a schema."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fixtures.artifacts import write_atomically
from fixtures.events import EVENTS
from fixtures.kinds import by_kind
from reports.detection import read_detection
from reports.page import main, page_of, read_reproducers, write_page
from reports.summary import SCHEMA_FILE, Summary, SummaryError, read_summary, schema_text
from reports.timeline import timeline_svg

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOSTILE = "<script>document.title = 'hostile'</script>"
LONG = "a-name-without-a-place-to-break-" * 12
MEASURE = """<!doctype html><body style="margin:0"><iframe id="f" style="border:0; width:{width}px; height:900px" src="{page}"></iframe>
<script>onload = () => {{
  const page = document.getElementById('f').contentDocument, root = page.documentElement
  const inside = [...page.querySelectorAll('body *')].filter(e => !e.closest('.wide') || e.matches('.wide'))
  const over = inside.filter(e => e.getBoundingClientRect().right > {width} + 1).map(e => e.tagName + '.' + e.className)
  const broken = [...page.images].filter(i => !i.complete || i.naturalWidth === 0).length
  document.title = JSON.stringify({{scroll: root.scrollWidth, client: root.clientWidth, over, broken, title: page.title,
    images: page.images.length, scripts: page.scripts.length, height: root.scrollHeight}})
}}</script></body>"""


def failure(**changes: object) -> dict:
    return {
        "verdict": "DIVERGED",
        "field": "bonus_tokens",
        "operation": "resolve inputs",
        "iteration": 3,
        "request": 1,
        "slot": 2,
        "expected": "5",
        "actual": "9",
        "history": ["iteration 2: merge of slots [1, 2]", "iteration 3: decode of slots [1, 2]"],
        "line": "iteration 3, request 1, slot 2: bonus_tokens after resolve inputs: expected 5, got 9",
        "mode": "release mode",
        "schedule": "artifacts/failures/0123456789ab/schedule.json",
    } | changes


def summary(**changes: object) -> dict:
    """A run that filled every part of the page, with words that a page must not trip over."""
    return {
        "summary_version": 1,
        "suite_version": "0.1.0",
        "verdict": "DIVERGED",
        "sut": {"root": f"/srv/{LONG}", "release": "0.5.23", "commit": "", "digest": "0" * 12, "contract": "bonus_tokens", "layer": ""},
        "device": "cpu",
        "stood_in_for": ["record_stream does nothing for CPU tensors"],
        "profile": "gate",
        "seed": 1,
        "seconds": 181.5,
        "checks": {"passed": 400, "failed": [f"suites/x.py::test[{HOSTILE}]", LONG], "errors": [], "skipped": {"kernels: no GPU": 3}},
        "known": {"an-entry": LONG},
        "incomplete": ["drain happened 4 times, 500 are wanted"],
        "median_requests": 4,
        "schedules": 6640,
        "iterations": 181_234,
        "events": {name: 1000 * (place + 1) for place, name in enumerate(EVENTS)},
        "pairs": {f"{a}>{b}": 123_456 for a in EVENTS for b in EVENTS},
        "modes": {"overlap": 140_000, "synchronous": 41_234},
        "live": {"4": 181_234},
        "shares": {"loop": 2.5},
        "failures": [
            failure(),
            failure(request=0),
            failure(verdict="ERROR", field="exception", operation="publish", line=f"exception: {HOSTILE} {LONG}", schedule=LONG),
        ],
    } | changes


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    """A run's folder with a reproducer in it."""
    write_atomically(tmp_path / "summary.json", json.dumps(summary()))
    story = {
        "divergence": failure(),
        "written": {"iteration": 1, "call": "stash", "slot": 2, "expected": 5, "actual": 9},
        "entries": [[i, "decode", [0, 1, 2], [1, 2, 3]] for i in range(9)],
        "operations": [[2, "merge", [1, 2]]],
        "raised": "",
        "last_call": None,
    }
    facts = {"sut": summary()["sut"], "divergence": failure(), "checked": "exited 1 on this build, 0 on the intact release"}
    write_atomically(tmp_path / "reproducers/one/timeline.svg", timeline_svg(story))
    write_atomically(tmp_path / "reproducers/one/divergence.json", json.dumps(facts))
    return tmp_path


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser here: looked for {', '.join(BROWSERS)}; apt-get install chromium")
    return found


@pytest.mark.parametrize("width", [1280, 390], ids=["desk", "phone"])
def test_it_fits_a_real_browser(width: int, browser: str, artifacts: Path) -> None:
    page = write_page(artifacts)
    frame = write_atomically(artifacts / "frame.html", MEASURE.format(width=width, page=page.as_uri()))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files", f"--user-data-dir={artifacts / 'browser'}"]
    command = [browser, *options, "--virtual-time-budget=8000", "--window-size=1400,1000", "--dump-dom", frame.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    assert title, done.stdout + done.stderr
    seen = json.loads(html.unescape(title[1]))
    assert seen["client"] == width
    assert seen["over"] == []
    assert seen["scroll"] <= width
    assert (seen["images"], seen["broken"], seen["scripts"]) == (2, 0, 0), "a timeline, and the picture of what is caught"
    assert seen["height"] > 1000
    assert seen["title"] == "DIVERGED: SGLang 0.5.23, relay files changed"


def test_it_needs_nothing_else(artifacts: Path) -> None:
    text = write_page(artifacts).read_text(encoding="utf-8")
    assert re.findall(r"""(?:src|href)=["'](?!data:)""", text) == []
    assert re.findall(r"url\(|@import|https?://", text) == []
    assert "<script" not in text


def test_it_shows_each_kind_once_with_its_timeline(artifacts: Path) -> None:
    text = write_page(artifacts).read_text(encoding="utf-8")
    assert text.count("<article>") == 2
    assert "2 schedules show this kind" in text
    assert text.count('alt="Timeline') == 1
    assert "exited 1 on this build, 0 on the intact release" in text
    for name in EVENTS:
        assert f'<th class="name">{name}</th>' in text
    assert text.count('class="few"') == 0
    assert 'title="cannot happen"' in text


def test_a_reproducer_of_another_build_is_not_shown(artifacts: Path) -> None:
    other = summary()
    other["sut"]["digest"] = "1" * 12
    write_atomically(artifacts / "summary.json", json.dumps(other))
    assert 'alt="Timeline' not in write_page(artifacts).read_text(encoding="utf-8")


def test_the_first_changed_files_are_named() -> None:
    files = [f"srt/managers/{name}.py" for name in "abcdef"]
    assert f"changed from 0.5.23: {', '.join(files[:4])} and 2 more" in page_of(Summary.model_validate(summary(changed=files)), [])
    assert "changed from" not in page_of(Summary.model_validate(summary()), [])


def test_a_pair_that_is_too_rare_stands_out() -> None:
    rare = summary(pairs=summary()["pairs"] | {"idle>merge": 3})
    assert page_of(Summary.model_validate(rare), []).count('class="few"') == 1


def test_a_run_without_failures_has_no_empty_parts() -> None:
    checks = {"passed": 9, "failed": [], "errors": [], "skipped": {}}
    clean = summary(verdict="PASS", failures=[], checks=checks, known={}, incomplete=[], schedules=0)
    text = page_of(Summary.model_validate(clean), [])
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert headings == ["What this suite catches", "Environment"]


def test_its_first_example_is_the_verdicts() -> None:
    """Whatever order the workers found them in: one that was kept, and drawn first."""
    found = [failure(index=9, line="a later one"), failure(schedule="", line="not kept"), failure(index=2, schedule="failures/first/schedule.json")]
    for order in (found, found[::-1]):
        text = page_of(Summary.model_validate(summary(failures=order)), [])
        first = by_kind(order)[0][0]
        assert first["index"] == 2
        assert f'<h3 class="bad">DIVERGED: {html.escape(first["line"])}</h3>' in text
        assert "tox -e replay -- failures/first/schedule.json" in text
        assert "3 schedules show this kind" in text


def test_it_says_which_suite_catches_which_planted_fault(tmp_path: Path) -> None:
    """As it was measured; where nothing was, the page goes without."""
    cells = {"release": {"caught": True, "by": "x", "schedules": 3, "seconds": 0.1}, "dtype": {"caught": False, "by": "", "seconds": 1.0}}
    data = {"origin": "Generated once.", "summary": {"faults": 2, "caught": 1}, "found": {"one": cells, "two": {"dtype": cells["dtype"]}}}
    write_atomically(tmp_path / "faults.json", json.dumps(data))
    assert read_detection(tmp_path) is None, "without its picture"
    write_atomically(tmp_path / "faults.svg", "<svg/>")
    found = read_detection(tmp_path)
    assert found.rows == [("one", ["3", ""]), ("two", [None, ""])]
    real = read_detection()
    text = page_of(Summary.model_validate(summary()), [])
    assert all(f"<th>{name}</th>" in text for name, _ in real.rows)
    assert real.caught == sum(any(cells) for _, cells in real.rows)


def test_a_reproducer_that_cannot_be_read_is_left_out(artifacts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_atomically(artifacts / "reproducers/two/divergence.json", "{")
    assert len(read_reproducers(artifacts)) == 1
    assert "two: left out of the page" in capsys.readouterr().err


# -- the summary ------------------------------------------------------------------------------------------


def test_the_schema_file_is_the_models_own() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), "python -m reports.summary > reports/summary.schema.json"


def test_every_field_of_the_schema_is_described() -> None:
    text = SCHEMA_FILE.with_name("README.md").read_text(encoding="utf-8")
    missing = [name for name in Summary.model_fields if f"`{name}`" not in text]
    assert missing == []


def test_a_real_run_writes_a_summary_that_fits(run_suite) -> None:
    ran = run_suite("--schedules", "5", "-k", "streams and release")
    assert ran.code == 0, ran.text
    found = read_summary(ran.artifacts / "summary.json")
    assert (found.verdict, found.schedules) == ("PASS", 4)
    assert set(found.events) <= set(EVENTS)
    assert set(json.loads((ran.artifacts / "summary.json").read_text(encoding="utf-8"))) == set(Summary.model_fields)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{", "Invalid JSON"), ("[]", "should be an object"), (json.dumps(summary(verdict="FINE")), "verdict: "), (json.dumps(summary(seconds=-1)), "seconds: ")],
    ids=["truncated", "list", "verdict", "seconds"],
)
def test_what_is_no_summary_is_refused_in_one_line(text: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_atomically(tmp_path / "summary.json", text)
    with pytest.raises(SummaryError):
        read_summary(tmp_path / "summary.json")
    assert main([str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1
