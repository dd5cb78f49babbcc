# SPDX-License-Identifier: Apache-2.0
"""
What libattn promises against the best peer of each case, with 2 threads.
A new promise is a row.
"""

import re
from dataclasses import dataclass

from .cases import CACHE_BYTES, PRECISIONS


@dataclass(frozen=True)
class Bar:
    """
    Every case of the kind and dtypes whose name has `pattern` reaches `least` times the best peer's speed; with
    `machine`, on those whose description has that.
    """

    text: str
    contender: str
    kind: str
    dtypes: tuple
    least: float
    pattern: str = ""
    machine: str = ""


# The description of a machine, of machine_of(): its processor, and what peaks it has.
AMD, INTEL = r"^AMD\b", r"^Intel\b"
AMX, NO_AMX = r" bf16/amx_bf16\b", r"^(?!.* bf16/amx_bf16\b)"


BARS = (
    Bar("f32 dense", "attn", "dense", ("f32",), 1.03),
    Bar("f32 causal", "attn", "causal", ("f32",), 1.30),
    Bar("bf16 dense", "attn", "dense", ("bf16",), 1.20),
    Bar("bf16 causal", "attn", "causal", ("bf16",), 1.45),
    Bar("padded batch", "attn", "padded", ("f32", "bf16"), 1.80),
    Bar("decoding", "attn", "decode", tuple(CACHE_BYTES), 1.05),
    Bar("decoding, grouped heads", "attn", "decode-grouped", tuple(CACHE_BYTES), 1.50),
    Bar("gradients, f32, AMD", "attn", "backward", ("f32",), 1.80, machine=AMD),
    Bar("gradients, f32 causal, AMD", "attn", "backward-causal", ("f32",), 1.80, machine=AMD),
    Bar("gradients, f32, Intel", "attn", "backward", ("f32",), 1.30, machine=INTEL),
    Bar("gradients, f32 causal, Intel", "attn", "backward-causal", ("f32",), 1.45, machine=INTEL),
    Bar("gradients, bf16", "attn", "backward", ("bf16",), 1.50, machine=NO_AMX),
    Bar("gradients, bf16 causal", "attn", "backward-causal", ("bf16",), 1.50, machine=NO_AMX),
    Bar("gradients, bf16, AMX", "attn", "backward", ("bf16",), 2.50, machine=AMX),
    Bar("gradients, bf16 causal, AMX", "attn", "backward-causal", ("bf16",), 2.50, machine=AMX),
    Bar("linear attention, prompts", "attn", "linear-attention", ("f32",), 3.00),
    Bar("linear attention, a token", "attn", "linear-attention-token", ("f32",), 3.00),
    Bar("linear layer", "attn", "linear", PRECISIONS, 1.00),
    Bar("linear layer, one row", "attn", "linear-row", PRECISIONS, 1.00),
    Bar("multi-head attention", "attn", "mha", ("f32",), 1.00),
    Bar("sentences, batches of 1", "attn", "embed", ("f32",), 1.00, "batch1$"),
    Bar("sentences, batches of 64", "attn", "embed", ("f32",), 1.00, "batch64$"),
    Bar("prompts", "attn", "prompt", PRECISIONS, 1.00),
    Bar("tokens behind a prompt", "attn", "generate", PRECISIONS, 1.00),
    Bar("Transformers, a prompt", "attn-python", "transformers-prefill", ("f32",), 1.15),
    Bar("Transformers, training", "attn-python", "transformers-train", ("f32",), 1.20),
    Bar("multi-head attention, bf16", "attn", "mha", ("bf16",), 1.30),
    Bar("multi-head attention, int8", "attn", "mha", ("int8",), 1.30),
    Bar("sentences, bf16", "attn", "embed", ("bf16",), 1.30),
    Bar("sentences, int8", "attn", "embed", ("int8",), 1.30),
)


def machine_of(context):
    """What bars know a machine by: the processor's name, and the peaks of the run."""
    return " ".join([context["cpu"], *sorted(context["peaks"])])


def check(results, bars=BARS, machine=""):
    """
    One verdict for each bar and each case that it speaks of:
    {"bar", "case", "least", "ratio" or None, "best_peer", "met", "reason"}.
    A case where libattn has no right result does not meet its bar; one
    without any peer is no verdict, as there is nothing to compare with.
    """
    verdicts = []
    for bar in bars:
        if not re.search(bar.machine, machine):
            continue
        for result in results:
            if result["kind"] != bar.kind or result["dtype"] not in bar.dtypes:
                continue
            if not re.search(bar.pattern, result["case"]):
                continue
            ratio, entry = result["ratios"].get(bar.contender), result["contenders"].get(bar.contender)
            if result["best_peer"] is None or entry is None:
                continue
            verdicts.append(
                {
                    "bar": bar.text,
                    "case": result["case"],
                    "least": bar.least,
                    "ratio": ratio,
                    "best_peer": result["best_peer"],
                    "met": ratio is not None and ratio >= bar.least,
                    "reason": "" if ratio is not None else entry.get("reason", "no result"),
                }
            )
    return verdicts


def lines(verdicts, threads=2):
    """The verdicts as text, and whether all are met. Without any verdict nothing was shown, which is not 'met'."""
    text = []
    if threads != 2:
        text.append(f"the bars are for 2 threads; this run used {threads}")
    for v in verdicts:
        figure = f"{v['ratio']:.3f}" if v["ratio"] is not None else f"none ({v['reason']})"
        word = "met    " if v["met"] else "NOT MET"
        text.append(f"{word}  {v['bar']:<24} {figure} of {v['least']:.2f}  {v['case']}  (best peer: {v['best_peer']})")
    failed = sum(not v["met"] for v in verdicts)
    text.append(f"{len(verdicts) - failed} of {len(verdicts)} bars met" if verdicts else "no bar was checked")
    return text, bool(verdicts) and failed == 0
