"""The picture of streams names each, shows what ran in its order, the edges, and the one that is missing."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
import torch

from fixtures.stream_story import tell_streams
from fixtures.virtual import EAGER, Interleaving, Machine, installed, late
from reports.stream_timeline import MOST_PIECES, missing_edge, stream_timeline_svg
from reports.timeline import SVG


def told(interleaving: Interleaving = EAGER, turns: int = 1) -> dict:
    """Stream 1 writes, stream 2 waits for a copy of it on stream 3 but not for the write that follows."""
    machine = Machine(interleaving, keep_trace=True)
    with torch.inference_mode(), installed(), machine.running():
        machine.label = (0, "make")
        cell = torch.zeros(4, dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        writer, reader, copier = (torch.cuda.Stream() for _ in range(3))
        for turn in range(turns):
            machine.label = (turn, "write")
            with torch.cuda.stream(writer):
                cell.fill_(turn)
            copier.wait_stream(writer)
            machine.label = (turn, "copy")
            with torch.cuda.stream(copier):
                cell.clone()
            reader.wait_stream(copier)
            machine.label = (turn, "write again")
            with torch.cuda.stream(writer):
                writer.wait_stream(copier)
                cell.fill_(9)
            machine.label = (turn, "read")
            with torch.cuda.stream(reader):
                cell.clone()
            torch.cuda.synchronize()
    return tell_streams(machine)


def texts(svg: str) -> list[str]:
    return [element.text for element in ET.fromstring(svg).iter(f"{{{SVG}}}text")]


def paths(svg: str, kind: str) -> list[ET.Element]:
    return [element for element in ET.fromstring(svg).iter(f"{{{SVG}}}path") if element.get("class") == kind]


def test_pieces_are_in_the_order_in_which_they_ran() -> None:
    eager, turned = told(), told(late(1))
    assert [piece["operation"] for piece in eager["pieces"]] == ["make", "write", "copy", "write again", "read"]
    assert [piece["operation"] for piece in turned["pieces"]] == ["make", "write", "copy", "read", "write again"]
    assert eager["streams"] == ["the default stream", "the schedule stream", "the forward stream", "the copy stream"]


@pytest.mark.parametrize("order", [EAGER, late(1)])
def test_edges_are_drawn_and_the_missing_one_is_not_among_them(order: Interleaving) -> None:
    found = told(order)
    names = [piece["operation"] for piece in found["pieces"]]
    edges = {(names[before], names[after]) for before, after in found["edges"]}
    assert edges == {("write", "copy"), ("copy", "read"), ("copy", "write again")}
    assert sorted(names[side] for side in found["sides"]) == ["read", "write again"]
    svg = stream_timeline_svg(found)
    assert len(paths(svg, "edge")) == 3
    assert len(paths(svg, "way")) == 1
    said = texts(svg)
    assert {"writes", "reads", "no edge between:", *missing_edge(found["race"])} <= set(said)
    assert {"schedule stream", "forward stream", "copy stream"} <= set(said)


def test_everything_lies_inside_the_picture() -> None:
    found = told(turns=20)
    found["pieces"] = [dict(found["pieces"][1], does=["x" * 200]) for _ in range(3 * MOST_PIECES)]
    found["sides"] = [2, 3 * MOST_PIECES - 1]
    svg = ET.fromstring(stream_timeline_svg(found))
    width, height = float(svg.get("width")), float(svg.get("height"))
    for element in svg.iter(f"{{{SVG}}}rect"):
        if element.get("class") != "page":
            assert 0 <= float(element.get("x")) <= width - float(element.get("width"))
            assert 0 <= float(element.get("y")) <= height - float(element.get("height"))
    assert all(0 < float(element.get("y")) < height for element in svg.iter(f"{{{SVG}}}text"))


def test_what_a_program_says_is_text_and_no_markup() -> None:
    found = told()
    found["race"]["first"]["site"] = "</svg><script>alert(1)</script>"
    svg = stream_timeline_svg(found)
    assert not [element for element in ET.fromstring(svg).iter() if element.tag.endswith("script")]


def test_without_a_race_there_is_nothing_to_tell() -> None:
    with torch.inference_mode(), installed(), Machine(keep_trace=True).running() as machine:
        torch.zeros(2, device="cuda")
    assert tell_streams(machine) is None
