"""`reproduce.py`: one flat file of relay calls with literal tensors, for somebody who has torch and SGLang only.

It exits 1 on a build with the fault, 0 on a right one and 2 when it could not run. Each call of a tape becomes
a line or two; the release's own names come from the adapter's `dialect`.
"""

from __future__ import annotations

from collections.abc import Callable

from fixtures.artifacts import WATCHING
from reports.script_parts import (
    CAME_BACK,
    COULD_NOT_RUN,
    SAYS_WHAT_IT_RAN_ON,
    WATCHED,
    WORDS,
    flat_docstring,
    in_a_child,
)

Call = dict

OF_ONE_CALL = ("accept_lens", "out_tokens", "block_ids", "positions", "cache_locs")  # named as the call's outputs are


class NotFlat(Exception):
    """No flat script is honest for this failure; says why."""


def flat_script(story: dict, calls: list[Call] | None, title: str, mode: str, device: str, by_worker: bool = False) -> str:
    """The script's text. Raises NotFlat.

    calls: those that matter, ending in the diverging read; None where all up to the failing one are made.
    by_worker: draft inputs come from the worker's own factories and not straight from their class.
    """
    return _Script(story, calls, title, mode, device, by_worker).text()


class _Script:
    def __init__(
        self, story: dict, calls: list[Call] | None, title: str, mode: str, device: str, by_worker: bool
    ) -> None:
        self.story, self.title, self.device = story, title, device
        self.debug = mode == "debug assertions"
        self.watch = mode.removeprefix(WATCHING) if mode.startswith(WATCHING) else ""
        self.dialect, self.failure = story["dialect"], story["divergence"]
        self.name = self.failure["field"]
        if story["dialect"].get("level") == "scheduler":
            raise NotFlat("SGLang's own scheduler makes the calls, and its whole loop belongs to the fault")
        self.is_read = story["read"] is not None
        if device == "virtual" or story.get("raced"):
            raise NotFlat("it takes streams, and an order in which their work runs")
        if not self.is_read and self.name not in ("exception", "assertion", "process"):
            raise NotFlat(f"it shows in {self.name}, which no single relay call gives")
        if calls is None and self.is_read:
            raise NotFlat("the relay calls made one after the other do not show it; it takes the whole loop")
        self.calls = calls if self.is_read else self._up_to_the_end()
        self.done = {call["do"] for call in self.calls}
        self.looked = False  # whether the relay's state was looked at before an idle batch
        self.by_worker = by_worker or self.name in ("new_bonus", "new_seq_lens")

    def _up_to_the_end(self) -> list[Call]:
        """All calls up to the one that raised, hung or killed; the model's part is left to the literals."""
        story, keep_host = self.story, self.failure["operation"] in ("filter", "merge", "retract", "idle")
        calls = [call for call in story["tape"][: story["calls"]] if call["do"] != "read"]
        drop = {"draft_block"} | (set() if keep_host else {"host_lengths"})
        if self.failure["operation"] != "accept":
            drop.add("accept")
        return [call for call in calls[:-1] if call["do"] not in drop] + calls[-1:]

    def text(self) -> str:
        lines = [flat_docstring(self.title), *self._imports_of_python(), "", *self._child(), "try:"]
        lines += _indented(self._set_up())
        body, when = [], None
        for call in self.calls:
            if call["iteration"] != when:
                when = call["iteration"]
                body.append(f"# iteration {when}")
            body += getattr(self, "_" + call["do"])(call)
        last = getattr(self, "_" + self.calls[-1]["do"])(self.calls[-1])
        split = len(body) if self.is_read or self.watch else len(body) - len(last)
        lines += _indented(body[:split])
        lines += COULD_NOT_RUN
        if self.watch:
            lines += ['print("touched:", touched)', f'assert not touched, "no name with {self.watch} in it should be touched"']
        else:
            lines += self._verdict() if self.is_read else self._raising(body[split:])
        return "\n".join(lines) + "\n"

    # -- around the calls ---------------------------------------------------------------------------------

    def _imports_of_python(self) -> list[str]:
        names = {"os", "sys", "traceback"}
        if not self.debug:
            names.discard("os")
        if self.name == "process":
            names |= {"faulthandler", "subprocess"}
        lines = [f"import {name}" for name in sorted(names)]
        return [*lines, "from types import SimpleNamespace"]

    def _child(self) -> list[str]:
        lines = []
        if self.debug:
            lines.append('os.environ.update(SGLANG_IS_IN_CI="1", TORCH_COMPILE_DISABLE="1")  # SGLang\'s debug assertions')
        if self.name == "process":
            lines += in_a_child("the calls may kill their process, so a child makes them")
        return lines

    def _set_up(self) -> list[str]:
        kind = self.device.split(":")[0]
        lines = [WORDS, "import torch"]
        if kind == "cpu":
            lines.append("torch.Tensor.record_stream = lambda self, stream: None  # CPU tensors have none")
            lines.append("torch.use_deterministic_algorithms(True, warn_only=True)  # torch.empty is filled")
        lines += ["import sglang", SAYS_WHAT_IT_RAN_ON]
        relay = {"stash", "resolve_lengths", "resolve_inputs", "publish", "relay_state"} & self.done
        drafts = {"draft_input", "idle_input"} & self.done
        if relay:
            names = ["FutureMap"]
            if "stash" in self.done and self.dialect["contract"] != "verified_id":
                names.append("RelayPayload")
            if "resolve_inputs" in self.done:
                names.append("resolve_forward_inputs")
            lines.append(f"from sglang.srt.managers.overlap_utils import {', '.join(names)}")
            lines.append("from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler")
        if relay or "batch" in self.done:
            lines.append("from sglang.srt.speculative.spec_info import SpeculativeAlgorithm")
        if drafts and not (self.by_worker and "idle_input" not in self.done):
            lines.append("from sglang.srt.speculative.dflash_info_v2 import DFlashDraftInputV2")
        if "draft_input" in drafts and self.by_worker:
            lines.append("from sglang.srt.speculative.dflash_worker_v2 import DFlashWorkerV2")
        for do, functions in (("accept", self._accept_functions()), ("draft_block", ["prepare_block"])):
            for function in functions if do in self.done else ():
                if function not in self.dialect["functions"]:
                    raise NotFlat(f"on this device no function of its own does the {do.replace('_', ' ')}")
                lines.append("from {} import {}".format(*self.dialect["functions"][function]))
        lines += self._watching("\n".join(lines))
        device = "" if kind == "cpu" else f', device="{self.device}"'
        lines.append("T = torch.tensor" if not device else f"T = lambda *a, **k: torch.tensor(*a, **k).to({self.device!r})")
        if relay or "batch" in self.done:
            lines.append('dflash = SpeculativeAlgorithm.from_string("DFLASH")')
        if relay:
            lines += [
                f'set_global_server_args_for_scheduler(ServerArgs(model_path="dummy", device="{kind}",',
                '    speculative_algorithm="DFLASH", speculative_num_draft_tokens=4))',
                f"pool = SimpleNamespace(req_to_token=torch.zeros(({self.story['rows']}, 8), dtype=torch.int32{device}), "
                "req_generation=None)",
                f"relay = FutureMap(torch.device({self.device!r}), dflash, pool, needs_cpu_seq_lens={self.story['host_lengths']})",
            ]
        if "draft_input" in drafts and self.by_worker:
            lines += ["worker = object.__new__(DFlashWorkerV2)", "worker.device = torch.device(%r)" % self.device]
        elif "draft_input" in drafts:
            bonus = self.dialect["bonus"]
            lines += [
                f"def draft_input({bonus}, new_seq_lens):",
                "    unused = torch.empty((len(new_seq_lens), 0))",
                "    return DFlashDraftInputV2(topk_p=unused, topk_index=unused, hidden_states=unused,",
                f"        {bonus}={bonus}, new_seq_lens=new_seq_lens)",
            ]
        if self.name == "process":
            lines.append(WATCHED + "a call hangs")
        return lines

    def _watching(self, imported: str) -> list[str]:
        """Notes every attribute with the word in its name that is read, written or deleted, however the name was put together."""
        if not self.watch:
            return []
        known = ("FutureMap", "RelayPayload", "DFlashDraftInputV2", "DFlashWorkerV2")
        classes = [name for name in known if name in imported]
        return [
            "touched = []",
            f"for cls in ({', '.join(classes)},):",
            '    for hook in ("__getattribute__", "__setattr__", "__delattr__"):',
            "        def watched(self, name, *rest, inner=getattr(cls, hook)):",
            f"            return ({self.watch!r} in name and touched.append(name)) or inner(self, name, *rest)",
            "        setattr(cls, hook, watched)",
        ]

    def _verdict(self) -> list[str]:
        wanted = self.story["wanted"]
        dtype = wanted["dtype"]
        lines = [f"expected = {wanted['values']}"]
        lines += ['print("expected", expected, "got", got.tolist(), got.dtype)']
        right = "got.tolist() == expected" + (f" and got.dtype == torch.{dtype}" if dtype else "")
        lines += [f"if not ({right}):", f'    raise AssertionError("{self._what()}")']
        return lines

    def _what(self) -> str:
        return f"{self.name.replace('_', ' ')} after {self.failure['operation']}: not what the relay was given"

    def _raising(self, last: list[str]) -> list[str]:
        if self.name == "process":
            return ["", *last, f"sys.exit({CAME_BACK})  # it came back"]
        error = self.story["raised"]
        lines = ["try:", *_indented(last), f"except {_caught(error)} as error:", "    traceback.print_exc()"]
        lines += ['    raise AssertionError("the relay raised") from error']
        return [*lines, *COULD_NOT_RUN]

    # -- one method for each call -------------------------------------------------------------------------

    def _t(self, values: list, dtype: str = "int64") -> str:
        if dtype == "int64" and values:
            return f"T({values})"
        return f"T({values}, dtype=torch.{dtype})"

    def _batch(self, call: Call) -> list[str]:
        host = f"T({call['host_lengths']})" if call["host_lengths"] else "None"
        prompt = self._t(call["prompt"]) if call["prompt"] is not None else "None"
        return [
            f'batch = SimpleNamespace(device="{self.device}", enable_overlap={call["overlap"]}, spec_algorithm=dflash,',
            f"    spec_info={call['draft']}, req_pool_indices={self._t(call['slots'])}, seq_lens={self._t(call['lengths'])},",
            f"    req_pool_indices_cpu=torch.tensor({call['slots']}, dtype=torch.int64), seq_lens_cpu={host}, "
            f"seq_lens_sum={call['host_sum']},",
            f"    input_ids=None, prefill_input_ids_cpu={prompt}, mix_running_indices=None)",
        ]

    def _resolve_lengths(self, call: Call) -> list[str]:
        return ["relay.resolve_seq_lens_cpu(batch)"]

    def _resolve_inputs(self, call: Call) -> list[str]:
        return ["resolve_forward_inputs(batch, relay)"]

    def _publish(self, call: Call) -> list[str]:
        return [f"relay.publish({self._t(call['slots'])}, {self._t(call['lengths'])})"]

    def _draft_input(self, call: Call) -> list[str]:
        bonus, lengths = self.dialect["bonus"], self._t(call["lengths"])
        if self.by_worker:
            stage, takes = ("prefill", "seq_lens") if call["prefill"] else ("decode", "new_seq_lens")
            given = f"{bonus}={self._t(call['bonus'])}, {takes}={lengths}"
            return [f"{call['name']} = worker._make_next_draft_input_{stage}({given})"]
        return [f"{call['name']} = draft_input({self._t(call['bonus'], self.dialect['bonus_dtype'])}, {lengths})"]

    def _idle_input(self, call: Call) -> list[str]:
        return [f"{call['name']} = DFlashDraftInputV2.create_idle_input(device=torch.device({self.device!r}))"]

    def _stash(self, call: Call) -> list[str]:
        payload = call["draft"]
        if self.dialect["contract"] != "verified_id":
            payload = f"RelayPayload.from_draft_input({payload})"
        return [f"relay.stash({self._t(call['slots'])}, {payload})"]

    def _carry(self, call: Call) -> list[str]:
        if call["slots"] is None:
            return []
        flag = [] if self.dialect["contract"] == "verified_id" else [f"{call['draft']}.future_dsa_topk_indices_available = False"]
        return [f"{call['draft']}.future_indices = {self._t(call['slots'])}", *flag]

    def _host_lengths(self, call: Call) -> list[str]:
        lists, sums = self.dialect["host_lists"], self.dialect["host_sums"]
        lines = [
            f"{call['draft']}.{name} = torch.tensor({values}, dtype=torch.int32)"
            for name, values in zip(lists, call["lists"], strict=True)
        ]
        summed = zip(sums, call["lists"][-len(sums) :], strict=True)
        return lines + [f"{call['draft']}.{name} = {sum(values)}" for name, values in summed]

    def _relay_state(self, call: Call) -> list[str]:
        if not self.looked:
            self.looked = True
            return ["before = {n: (v, v.clone() if torch.is_tensor(v) else v) for n, v in vars(relay).items()}"]
        self.looked = False
        return [
            "changed = [n for n, v in vars(relay).items() if n not in before or (not torch.equal(before[n][1], v)",
            "    if torch.is_tensor(v) and before[n][0] is v else before[n][0] is not v and before[n][1] is not v)]",
            'print("changed:", changed)',
        ]

    def _filter(self, call: Call) -> list[str]:
        given = [f"new_indices={self._t(call['keep'])}"]
        given += [f"{name}={value}" for name, value in self.dialect["filter_flags"].items()]
        if self.dialect["filter_takes_host"]:
            given.append(f"new_indices_cpu={call['keep']}")
        return [f"{call['draft']}.filter_batch({', '.join(given)})"]

    def _merge(self, call: Call) -> list[str]:
        return [f"{call['draft']}.merge_batch({call['other']})"]

    def _accept_functions(self) -> list[str]:
        if self.device != "cpu":
            return ["accept_bonus"]
        own = self.dialect["functions"]["commit_accept"][0].startswith("sglang.")
        return ["eager_accept", "commit_accept"] if own and self.name == "out_tokens" else ["eager_accept"]

    def _accept(self, call: Call) -> list[str]:
        names = {name: function[1] for name, function in self.dialect["functions"].items()}
        lines = [f"candidates, top1 = {self._t(call['candidates'])}, {self._t(call['top1'])}"]
        if self.device != "cpu":
            rows = len(call["candidates"])
            return [
                *lines,
                f"accept_lens, commit_lens, bonus, out_tokens = (torch.empty({rows}, dtype=torch.int32, device=top1.device),",
                f"    torch.empty({rows}, dtype=torch.int32, device=top1.device), torch.empty({rows}, dtype=torch.int64, "
                "device=top1.device), torch.empty_like(top1))",
                f"{names['accept_bonus']}(candidates, top1, accept_lens, commit_lens, bonus, out_tokens, "
                f"{self._t(call['lengths'])}, torch.empty({rows}, dtype=torch.int64, device=top1.device))",
            ]
        lines.append(f"accept_lens, bonus = {names['eager_accept']}(candidates=candidates, target_predict=top1)")
        if self.name == "out_tokens":
            if "commit_accept" not in self._accept_functions():
                raise NotFlat("this release computes the committed tokens inside its worker")
            lines.append(f"out_tokens, commit_lens = {names['commit_accept']}(candidates, accept_lens, bonus)")
        return lines

    def _draft_block(self, call: Call) -> list[str]:
        if self.device == "cpu":
            raise NotFlat("on a CPU the worker lays out the draft block inline")
        size = (len(call["slots"]), call["block_size"])
        return [
            f"block_ids, positions, cache_locs = (torch.empty({size}, dtype=torch.int64, device={self.device!r}) for _ in range(3))",
            f"{self.dialect['functions']['prepare_block'][1]}({self._t(call['bonus'], self.dialect['bonus_dtype'])}, "
            f"{self._t(call['lengths'])}, {self._t(call['slots'])},",
            f"    {self._t(call['table'], 'int32')}, block_ids, positions, cache_locs, {call['mask_token']})",
        ]

    def _read(self, call: Call) -> list[str]:
        bonus, latest, of = self.dialect["bonus"], self._latest_draft(), call.get("draft")
        lists = ", ".join(f"{of}.{name}" for name in self.dialect["host_lists"])
        sums = ", ".join(f"{of}.{name}" for name in self.dialect["host_sums"])
        places: dict[str, Callable[[], str]] = {
            "future_indices": lambda: f"{of}.future_indices",
            "reserved_lens": lambda: f"torch.cat([{lists}])",
            "reserved_sum": lambda: f"torch.tensor([{sums}])",
            "carried_lens": lambda: f"{of}.new_seq_lens",
            "seq_lens_sum": lambda: "torch.tensor([-1 if batch.seq_lens_sum is None else batch.seq_lens_sum])",
            "carried_rows": lambda: f"torch.tensor([len({of}.topk_p), len({of}.topk_index), len({of}.hidden_states)])",
            "host_mirror": lambda: "torch.tensor([batch.seq_lens_cpu is not None, batch.seq_lens_sum is not None])",
            "relay_state": lambda: "torch.tensor([len(changed)])",
            "input_ids": lambda: "batch.seq_lens[:0] if batch.input_ids is None else batch.input_ids",
            "seq_lens": lambda: "batch.seq_lens",
            "seq_lens_cpu": lambda: "batch.seq_lens_cpu",
            "bonus_tokens": lambda: f"batch.spec_info.{bonus}",
            "new_bonus": lambda: f"{latest}.{bonus}",
            "new_seq_lens": lambda: f"{latest}.new_seq_lens",
        }
        if call["field"] not in places and call["field"] not in OF_ONE_CALL:
            raise NotFlat(f"no line is known that reads {call['field']}")
        return [f"got = {places.get(call['field'], lambda: call['field'])()}"]

    def _latest_draft(self) -> str:
        return next((call["name"] for call in reversed(self.calls) if call["do"] in ("draft_input", "idle_input")), "")


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def _caught(error: str) -> str:
    """The exception to catch: by its builtin name, or whatever comes where it has none."""
    import builtins

    return error if isinstance(getattr(builtins, error, None), type) else "Exception"
