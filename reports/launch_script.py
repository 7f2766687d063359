"""`reproduce.py` for a kernel: one launch with its tensors written out, for somebody who has torch and SGLang only."""

from __future__ import annotations

import math

import torch

from fixtures.guarded import span
from fixtures.launch import Held, Launch, Layout, as_bits, integer_of, right_values
from reports.script_parts import (
    CAME_BACK,
    COULD_NOT_RUN,
    SAYS_WHAT_IT_RAN_ON,
    WATCHED,
    WORDS,
    flat_docstring,
    in_a_child,
)

GUARD = 64  # elements of untouched memory on both sides of an output


def launch_script(launch: Launch, failure: dict, title: str, home: str, device: str) -> str:
    """The script's text. home: the module that this build keeps the kernel in."""
    name, kind = launch.kernel, failure["field"]
    lost = kind == "process"
    lines = [flat_docstring(title), "import os"]
    lines += ["import faulthandler", "import subprocess"] if lost else []
    lines += ["import sys", "import traceback"]
    if device == "cpu":
        lines.append('os.environ.update(TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")  # without a GPU')
    if lost:
        lines += in_a_child("the launch may kill its process, so a child makes it")
    body = [WORDS, "import torch", "import sglang", SAYS_WHAT_IT_RAN_ON, f"from {home} import {name}"]
    move = "" if device == "cpu" else f".to({device!r})"
    body.append(f"T = lambda values, dtype=torch.int64: torch.tensor(values, dtype=dtype){move}")
    body += [f"{one} = {_held(held)}" for one, held in launch.inputs.items()]
    where = "" if device == "cpu" else f", device={device!r}"
    for one, layout in launch.outputs.items():
        body += _output(one, layout, where, kind == "memory beside an output")
    if lost:
        body.append(WATCHED + "it hangs")
    lines += ["try:", *(f"    {line}" for line in body), *COULD_NOT_RUN]
    return "\n".join(lines + _call_and_verdict(launch, kind, name)) + "\n"


def _call_and_verdict(launch: Launch, kind: str, name: str) -> list[str]:
    signature = launch.signature()
    call = f"{name}({', '.join([*signature.tensors, *(str(launch.scalars[one]) for one in signature.scalars)])})"
    if kind == "process":
        return [call, f"sys.exit({CAME_BACK})  # it came back"]
    if kind == "refusal":
        refused = ["try:", f"    {call}", "except ValueError as error:", f"    sys.exit(0 if {launch.refuses!r} in str(error) else 2)"]
        return [*refused, *COULD_NOT_RUN, f'raise AssertionError("the launch was taken, although {launch.refuses} has gaps")']
    if kind == "exception":
        raised = ["try:", f"    {call}", "except Exception as error:", '    raise AssertionError("the launch raised") from error']
        return [*raised, *COULD_NOT_RUN]
    results = f"{', '.join(signature.writes)} = " if signature.allocates else ""
    if launch.refuses:
        lines = ["try:", f"    {call}", "except ValueError:", "    pass  # as it should"]
        return [*lines, *COULD_NOT_RUN, f'assert ({kind} == -1).all(), "{kind} was written before the launch was refused"']
    return ["try:", f"    {results}{call}", *COULD_NOT_RUN, *_comparison(launch, kind)]


def _comparison(launch: Launch, kind: str) -> list[str]:
    """The assertion that fails."""
    if kind.endswith("(an input)"):
        name = kind.removesuffix(" (an input)")
        return [f"unchanged = {_held(launch.inputs[name])}", f'assert torch.equal({name}, unchanged), "{name} changed, which is an input"']
    if kind == "memory beside an output":
        return [
            f"for name, around in {{{', '.join(f'{one!r}: around_{one}' for one in launch.outputs)}}}.items():",
            f'    assert (around[:{GUARD}] == -1).all() and (around[-{GUARD}:] == -1).all(), f"written beside {{name}}"',
        ]
    names = launch.signature().writes
    expected = dict(zip(names, right_values(launch), strict=True))[kind]
    if expected is None:
        return [f'assert {kind} is None, "{kind} should stay absent"']
    dtype = launch.outputs[kind].dtype if kind in launch.outputs else expected.dtype
    viewed = f".view({integer_of(dtype)})" if dtype.is_floating_point else ""
    return [
        f"expected, got = {as_bits(expected).tolist()}, {kind}{viewed}.tolist()",
        'print("expected", expected, "got", got)',
        f'assert got == expected and {kind}.dtype == {dtype}, "{kind} is not what the old relay\'s kernel gives"',
    ]


def can_be_flat(launch: Launch, failure: dict) -> bool:
    """Not where the memory counts that lies beside an output which the kernel itself allocates."""
    return not (failure["field"] == "memory beside an output" and launch.signature().allocates)


def _output(name: str, layout: Layout, where: str, watched: bool) -> list[str]:
    options = f"-1, dtype={layout.dtype}{where}"
    if layout != Layout.plain(layout.dtype, layout.shape):
        return [f"{name} = torch.full(({span(layout.shape, layout.stride)},), {options}).as_strided({layout.shape}, {layout.stride})"]
    if not watched:
        return [f"{name} = torch.full({layout.shape}, {options})"]
    size = math.prod(layout.shape)
    return [
        f"around_{name} = torch.full(({size + 2 * GUARD},), {options})",
        f"{name} = around_{name}[{GUARD}:{GUARD + size}].view({layout.shape})",
    ]


def _held(held: Held | None) -> str:
    if held is None:
        return "None"
    dtype = held.buffer.dtype
    as_integer = integer_of(dtype)
    plain = held.is_plain()
    values = (held.view() if plain else held.buffer).view(as_integer)
    text = f"T({values.tolist()}" + (")" if as_integer is torch.int64 else f", {as_integer})")
    text += f".view({dtype})" if dtype.is_floating_point else ""
    if plain and not values.numel():
        text += f".view({held.shape})"
    return text if plain else f"{text}.as_strided({held.shape}, {held.stride}, {held.offset})"
