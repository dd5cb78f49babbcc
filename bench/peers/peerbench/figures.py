# SPDX-License-Identifier: Apache-2.0
"""
From samples to figures: the fastest and the median sample, throughput, who the
best peer is, and ratios to it. Plain functions on plain dictionaries, which are
also what is written as JSON.

A result of a case:

    {"case": name, "suite": ..., "kind": ..., "dtype": ..., "flops": ...,
     "items": sentences, tokens, products, calls or None,
     "bytes": of keys and values, in decoding, or of the weights of one row, or None, "peak_gflops": ... or None,
     "read_gb_per_second": what the machine reads, where these come from memory,
     "contenders": {name: entry}}

and an entry is one of

    {"status": "ok", "samples": [seconds, ...], "way": ..., "difference": ..., "parts": {name: [seconds, ...]},
     and what summarise() adds}
    {"status": "wrong", "reason": ..., "samples": [...]}     its output disagrees
    {"status": "missing", "reason": ...}                     not installed, not supported, failed
"""

import statistics

from . import registry

OWN = tuple(row.name for row in registry.ROWS if row.own)

# After this many rounds, a contender that needs this many times the fastest one's time takes no further turns.
SETTLED_ROUNDS = 3
SETTLED_RATIO = 3.0


def is_settled(name, samples, fastest):
    """Whether more turns will not make this peer the best: saves most of a run's time. libattn takes all."""
    return name not in OWN and len(samples) >= SETTLED_ROUNDS and min(samples) > SETTLED_RATIO * fastest


def summarise(result):
    """Adds times, throughput, the best peer, and the ratios to it. Returns the result."""
    for entry in result["contenders"].values():
        if entry.get("samples"):
            entry["seconds"] = min(entry["samples"])
            entry["seconds_median"] = statistics.median(entry["samples"])
            entry["shares"] = {n: min(s) / entry["seconds"] for n, s in entry.get("parts", {}).items()}
            entry["gflops"] = 1e-9 * result["flops"] / entry["seconds"]
            if result.get("peak_gflops"):
                entry["fraction"] = entry["gflops"] / result["peak_gflops"]
            if result.get("bytes"):
                entry["gb_per_second"] = 1e-9 * result["bytes"] / entry["seconds"]
            if result.get("read_gb_per_second"):
                entry["fraction_of_read"] = entry["gb_per_second"] / result["read_gb_per_second"]
    result["best_peer"] = best(result, own=False)
    result["ratios"] = {}
    result["ratios_median"] = {}
    if result["best_peer"] is not None:
        peer = result["contenders"][result["best_peer"]]
        fastest_median = min(e["seconds_median"] for n, e in agreeing(result).items() if n not in OWN)
        for name in OWN:
            entry = agreeing(result).get(name)
            if entry is not None:
                result["ratios"][name] = peer["seconds"] / entry["seconds"]
                result["ratios_median"][name] = fastest_median / entry["seconds_median"]
    return result


# In which unit the speed of a suite's cases is shown.
UNITS = {
    "attention": "GFLOP/s",
    "decode": "GB/s of keys and values",
    "backward": "GFLOP/s",
    "linear-attention": "µs",
    "linear": "µs",
    "mha": "ms",
    "embed": "sentences/s",
    "generate": "tokens/s",
    "transformers": "tokens/s",
}


def unit(result):
    return UNITS[result.get("suite", "attention")]


def three_digits(value):
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"


def milliseconds(entry):
    return three_digits(1e3 * entry["seconds"])


def gigabytes(entry):
    return f"{entry['gb_per_second']:.1f}"


def gigaflops(entry):
    return three_digits(entry["gflops"])


def further(result):
    """What a report has of libattn and of the best peer besides their speed: {heading: text of an entry}."""
    reading = result.get("bytes") is not None
    if result.get("suite", "attention") == "linear":
        return {"GFLOP/s": gigaflops, **({"GB/s": gigabytes} if reading else {})}
    if result.get("suite") == "linear-attention":
        return {"GFLOP/s": gigaflops}
    return {"ms": milliseconds} if reading else {}


def shown(result, entry):
    """An entry's speed as text, in its suite's unit."""
    name = unit(result)
    if name == "ms":
        return milliseconds(entry)
    if name == UNITS["linear"]:
        return three_digits(1e6 * entry["seconds"] / result["items"])
    if name == UNITS["decode"]:
        return gigabytes(entry)
    if result.get("items"):
        return f"{result['items'] / entry['seconds']:.0f}"
    return f"{entry['gflops']:.0f}"


def cores_used(results, name):
    """
    Processor time over time, median over a contender's samples: how many cores
    it had. Well below the number of threads for everyone, the machine was busy.
    """
    used = [
        cpu / seconds
        for result in results
        if (entry := result["contenders"].get(name)) is not None and entry["status"] == "ok"
        for cpu, seconds in zip(entry.get("cpu_seconds", ()), entry["samples"])
    ]
    return statistics.median(used) if used else None


def agreeing(result):
    """Entries that were measured and whose output is right."""
    return {n: e for n, e in result["contenders"].items() if e["status"] == "ok" and e.get("samples")}


def best(result, own):
    """The name of the fastest of libattn's variants, or of the peers; None without any."""
    entries = {n: e for n, e in agreeing(result).items() if (n in OWN) == own}
    return min(entries, key=lambda n: entries[n]["seconds"]) if entries else None


def lost_cases(results):
    """(result, variant, ratio) wherever a peer is faster than a variant of libattn."""
    return [(r, name, ratio) for r in results for name, ratio in r["ratios"].items() if ratio < 1.0]
