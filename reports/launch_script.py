"""`reproduce.py` for a kernel: one launch with its tensors written out, for somebody who has torch and SGLang only."""

from __future__ import annotations

import math
import textwrap

import torch

from fixtures.launch import BITS, Held, Launch, Layout, right_values
from reports.flat_script import CAME_BACK, WATCHDOG, WIDTH

GUARD = 64  # elements of untouched memory on both sides of an output


def launch_script(launch: Launch, failure: dict, title: str, home: str, device: str) -> str:
    """The script's text. home: the module that this build keeps the kernel in."""
    name, kind = launch.kernel, failure["field"]
    lost = kind == "process"
    wrapped = "\n".join(textwrap.wrap(title, WIDTH - 3)).replace('"', "'").replace("\\", "/")
    lines = [f'"""{wrapped}\n\nExit 1: the fault is there; 0: it is not; 2: this could not run. Arguments: folders to import sglang from."""', "import os"]
    lines += ["import faulthandler", "import subprocess"] if lost else []
    lines += ["import sys", "import traceback"]
    if device == "cpu":
        lines.append('os.environ.update(TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")  # without a GPU')
    if lost:
        lines += [
            "if 'child' not in sys.argv:  # the launch may kill its process, so a child makes it",
            '    code = subprocess.run([sys.executable, __file__, *sys.argv[1:], "child"]).returncode',
            f"    sys.exit({{{CAME_BACK}: 0, 2: 2}}.get(code, 1))",
        ]
    body = ['sys.path[:0] = [word for word in sys.argv[1:] if word != "child"]', "import torch", "import sglang"]
    body.append('print("SGLang", sglang.__version__, "from", sglang.__file__, "torch", torch.__version__)')
    body.append(f"from {home} import {name}")
    move = "" if device == "cpu" else f".to({device!r})"
    body.append(f"T = lambda values, dtype=torch.int64: torch.tensor(values, dtype=dtype){move}")
    body += [f"{one} = {_held(held)}" for one, held in launch.inputs.items()]
    where = "" if device == "cpu" else f", device={device!r}"
    for one, layout in launch.outputs.items():
        body += _output(one, layout, where, kind == "memory beside an output")
    if lost:
        body.append(f"faulthandler.dump_traceback_later({WATCHDOG}, exit=True)  # exits 1 where it hangs")
    lines += ["try:", *(f"    {line}" for line in body), "except BaseException:", "    traceback.print_exc()", "    sys.exit(2)"]
    return "\n".join(lines + _call_and_verdict(launch, kind, name)) + "\n"


def _call_and_verdict(launch: Launch, kind: str, name: str) -> list[str]:
    signature = launch.signature()
    call = f"{name}({', '.join([*signature.tensors, *(str(launch.scalars[one]) for one in signature.scalars)])})"
    other = ["except BaseException:", "    traceback.print_exc()", "    sys.exit(2)"]
    if kind == "process":
        return [call, f"sys.exit({CAME_BACK})  # it came back"]
    if kind == "refusal":
        refused = ["try:", f"    {call}", "except ValueError as error:", f"    sys.exit(0 if {launch.refuses!r} in str(error) else 2)"]
        return [*refused, *other, f'raise AssertionError("the launch was taken, although {launch.refuses} has gaps")']
    if kind == "exception":
        raised = ["try:", f"    {call}", "except Exception as error:", '    raise AssertionError("the launch raised") from error']
        return [*raised, *other]
    results = f"{', '.join(signature.writes)} = " if signature.allocates else ""
    if launch.refuses:
        lines = ["try:", f"    {call}", "except ValueError:", "    pass  # as it should"]
        return [*lines, *other, f'assert ({kind} == -1).all(), "{kind} was written before the launch was refused"']
    return ["try:", f"    {results}{call}", *other, *_comparison(launch, kind)]


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
    as_bits = f".view({BITS[dtype.itemsize]})" if dtype.is_floating_point else ""
    bits = expected.view(BITS[dtype.itemsize]) if dtype.is_floating_point else expected
    return [
        f"expected, got = {bits.tolist()}, {kind}{as_bits}.tolist()",
        'print("expected", expected, "got", got)',
        f'assert got == expected and {kind}.dtype == {dtype}, "{kind} is not what the old relay\'s kernel gives"',
    ]


def can_be_flat(launch: Launch, failure: dict) -> bool:
    """Not where the memory counts that lies beside an output which the kernel itself allocates."""
    return not (failure["field"] == "memory beside an output" and launch.signature().allocates)


def _output(name: str, layout: Layout, where: str, watched: bool) -> list[str]:
    options = f"-1, dtype={layout.dtype}{where}"
    if layout != Layout.plain(layout.dtype, layout.shape):
        span = 1 + sum((length - 1) * step for length, step in zip(layout.shape, layout.stride, strict=True))
        return [f"{name} = torch.full(({span},), {options}).as_strided({layout.shape}, {layout.stride})"]
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
    as_integer = BITS[dtype.itemsize] if dtype.is_floating_point else dtype
    plain = held.is_plain()
    values = (held.view() if plain else held.buffer).view(as_integer)
    text = f"T({values.tolist()}" + (")" if as_integer is torch.int64 else f", {as_integer})")
    text += f".view({dtype})" if dtype.is_floating_point else ""
    if plain and not values.numel():
        text += f".view({held.shape})"
    return text if plain else f"{text}.as_strided({held.shape}, {held.stride}, {held.offset})"
