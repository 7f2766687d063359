"""The timeline names each launch, and the two places that a reader looks for; nothing in it is markup of a schedule."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from reports.timeline import MOST_COLUMNS, SVG, timeline_svg, way_of_the_value


def story(**changes: object) -> dict:
    failure = {"verdict": "DIVERGED", "field": "bonus_tokens", "operation": "resolve inputs", "iteration": 3, "request": 7, "slot": 2}
    return {
        "divergence": failure | {"expected": "5", "actual": "9", "line": "iteration 3: expected 5, got 9"},
        "raised": "",
        "last_call": None,
        "written": {"iteration": 1, "call": "stash", "what": "bonus", "slot": 2, "expected": 5, "actual": 9},
        "entries": [[0, "extend", [4, 7], [1, 2]], [1, "decode", [4, 7], [1, 2]], [3, "decode", [7], [2]]],
        "operations": [[0, "prefill", [1, 2]], [0, "extend", [1, 2]], [2, "idle", []], [3, "filter", [2]], [3, "decode", [2]]],
    } | changes


def texts(svg: str) -> list[str]:
    return [element.text for element in ET.fromstring(svg).iter(f"{{{SVG}}}text")]


def boxes(svg: str, kind: str) -> list[ET.Element]:
    return [element for element in ET.fromstring(svg).iter(f"{{{SVG}}}rect") if element.get("class") == kind]


def test_it_shows_requests_iterations_slots_and_operations() -> None:
    said = texts(timeline_svg(story()))
    assert [words for words in said if words.startswith("iteration ")] == ["iteration 0", "iteration 1", "iteration 2", "iteration 3"]
    assert [words for words in said if words.startswith("request ")] == ["request 4", "request 7"]
    assert said.count("prefill") == 2
    assert said.count("decode") == 3
    assert said.count("slot 2") == 3
    assert {"idle", "filter"} <= set(said)


def test_it_shows_where_the_wrong_value_was_written_and_read() -> None:
    svg = timeline_svg(story())
    assert len(boxes(svg, "wrong")) == 2
    said = texts(svg)
    assert "written wrong" in said
    assert "seen wrong" in said
    assert "written: iteration 1, request 7: stash wrote 9, not 5" in said
    assert "seen: iteration 3, request 7: resolve inputs gave 9" in said


def test_a_value_of_the_whole_batch_is_seen_by_no_request() -> None:
    whole = story()["divergence"] | {"field": "seq_lens_sum", "operation": "resolve lengths", "request": -1, "slot": -1}
    assert "seen: iteration 3: resolve lengths gave 9" in texts(timeline_svg(story(divergence=whole)))


def test_an_arrow_goes_from_where_it_was_written_to_where_it_was_seen() -> None:
    written, seen = boxes(timeline_svg(story()), "wrong")
    way = next(path.get("d") for path in ET.fromstring(timeline_svg(story())).iter(f"{{{SVG}}}path") if path.get("class") == "way")
    numbers = [int(number) for number in re.findall(r"-?\d+", way)]
    (x1, y1), (x2, y2) = numbers[:2], numbers[-2:]
    assert x1 == int(written.get("x")) + int(written.get("width"))
    assert int(seen.get("x")) - 10 < x2 < int(seen.get("x"))
    for box, y in ((written, y1), (seen, y2)):
        assert int(box.get("y")) < y < int(box.get("y")) + int(box.get("height"))


def test_a_value_that_was_right_until_it_was_read_is_said_to_be() -> None:
    svg = timeline_svg(story(written=None, tape=[{"do": "read"}]))
    assert len(boxes(svg, "wrong")) == 1
    assert any("no row of the relay's buffers is wrong before" in words for words in texts(svg))


def test_nothing_is_said_of_rows_that_nobody_watched() -> None:
    """With SGLang's own scheduler, and on streams, no look is taken at the buffers."""
    for unwatched in ({}, {"tape": []}):
        assert not any("buffers" in words for words in texts(timeline_svg(story(written=None) | unwatched)))


def test_a_call_that_does_not_come_back_has_its_place() -> None:
    lost = story()["divergence"] | {"field": "process", "operation": "run", "iteration": -1, "request": -1, "actual": "the process ended"}
    found = story(divergence=lost, written=None, last_call={"do": "publish", "iteration": 1})
    assert way_of_the_value(found)[1].word == "publish did not come back"
    assert "iteration 3" not in texts(timeline_svg(found))


def test_both_themes_have_their_colours() -> None:
    svg = timeline_svg(story())
    assert "@media (prefers-color-scheme: dark)" in svg
    assert "http://" not in svg.replace(SVG, "")
    assert "https://" not in svg


def test_what_a_sut_says_is_text_and_no_markup() -> None:
    hostile = story()["divergence"] | {"line": "</svg><script>alert(1)</script>", "actual": "<b>&9"}
    svg = timeline_svg(story(divergence=hostile))
    assert not [element for element in ET.fromstring(svg).iter() if element.tag.endswith(("script", "}b"))]
    assert "seen: iteration 3, request 7: resolve inputs gave <b>&9" in texts(svg)


def test_everything_lies_inside_the_picture() -> None:
    many = story(entries=[[i, "decode", list(range(30)), list(range(1, 31))] for i in range(60)])
    many["divergence"]["iteration"] = 59
    svg = ET.fromstring(timeline_svg(many))
    width, height = float(svg.get("width")), float(svg.get("height"))
    assert sum(1 for words in texts(timeline_svg(many)) if words.startswith("iteration ")) == MOST_COLUMNS
    for element in svg.iter(f"{{{SVG}}}rect"):
        if element.get("class") != "page":
            assert float(element.get("x")) + float(element.get("width")) <= width
            assert float(element.get("y")) + float(element.get("height")) <= height
    for element in svg.iter(f"{{{SVG}}}text"):
        assert 0 < float(element.get("y")) < height
