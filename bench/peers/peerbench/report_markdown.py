# SPDX-License-Identifier: Apache-2.0
"""The report as Markdown: who took part, a table for each type and kind of case, bars, lost cases, memory."""

from . import bars, figures, registry
from .cases import CACHE_BYTES, DTYPES, PRECISIONS

KINDS = (
    ("dense", "Dense"),
    ("causal", "Causal"),
    ("padded", "Padded batch, half of the keys masked"),
    ("mask", "Boolean mask"),
    ("decode", "Decoding"),
    ("decode-grouped", "Decoding, grouped heads"),
    ("backward", "Gradients"),
    ("backward-causal", "Gradients, causal"),
    ("both", "Forward call and gradients"),
    ("both-causal", "Forward call and gradients, causal"),
    ("linear-attention", "Linear attention, a prompt"),
    ("linear-attention-token", "Linear attention, a token"),
    ("linear-row", "Linear layer, one row"),
    ("linear", "Linear layer"),
    ("mha", "Multi-head attention with its projections"),
    ("mha-small", "Multi-head attention with its projections, short"),
    ("embed", "Sentences through all-MiniLM-L6-v2"),
    ("prompt", "Prompts of SmolLM2-135M-Instruct"),
    ("generate", "Tokens behind a prompt, SmolLM2-135M-Instruct"),
    ("transformers-prefill", "Prompts of SmolLM2-135M-Instruct in Transformers"),
    ("transformers-train", "Training steps of all-MiniLM-L6-v2 in Transformers"),
)


def table(header, rows):
    """Lines of a Markdown table; the first column is text, the others are numbers."""
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def escape(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def figure(result, name, is_best):
    """The speed of one contender, bold when it is the best of the case."""
    entry = result["contenders"][name]
    if entry["status"] == "wrong":
        return "wrong"
    if entry["status"] != "ok" or not entry.get("samples"):
        return "–"
    text = figures.shown(result, entry)
    return f"**{text}**" if is_best else text


def case_table(results, names):
    """The lines of a table of cases of one kind."""
    names = [n for n in names if n in results[0]["contenders"]]
    own = [n for n in figures.OWN if n in names]
    entries = [figures.agreeing(r).get(n) for r in results for n in own]
    parts = list(dict.fromkeys(part for e in entries if e for part in e.get("shares", {})))
    limit = "of read" if results[0].get("bytes") is not None else "of peak"
    more = [heading for name in figures.further(results[0]) for heading in (name, f"{name}, best peer")]
    header = ["case", *names, *(f"x {n}" for n in own), limit, *more, *(f"{part} %" for part in parts)]
    return table(header, case_rows(results, names, parts))


def case_rows(results, names, parts=()):
    rows = []
    for result in results:
        fastest = min(figures.agreeing(result).items(), key=lambda item: item[1]["seconds"], default=(None, None))[0]
        row = [f"`{escape(result['case'])}`"]
        row += [figure(result, n, n == fastest) for n in names]
        row += [f"{result['ratios'][n]:.2f}" if n in result["ratios"] else "–" for n in figures.OWN if n in names]
        own = figures.best(result, own=True)
        reading = result.get("bytes") is not None
        fraction = result["contenders"][own].get("fraction_of_read" if reading else "fraction") if own else None
        row.append(f"{fraction:.2f}" if fraction else "–")
        for text in figures.further(result).values():
            row += [text(result["contenders"][n]) if n else "–" for n in (own, result["best_peer"])]
        shares = result["contenders"][own].get("shares", {}) if own else {}
        row += [f"{100 * shares[part]:.0f}" if part in shares else "–" for part in parts]
        rows.append(row)
    return rows


def participants(run, names):
    lines = ["## Who took part", ""]
    rows = []
    for name in names:
        row = registry.row(name)
        if name in run["missing"]:
            state = f"missing: {escape(run['missing'][name])}"
        else:
            state = escape(run["context"]["versions"].get(name, "?"))
            note = run["context"]["notes"].get(name)
            state += f"; {escape(note)}" if note else ""
        cores = figures.cores_used(run["results"], name)
        rows.append([f"`{name}`", row.title, state, f"{cores:.2f}" if cores else "–"])
    lines += [
        "The last column is processor time over time, median of all samples: where it is well below the number of"
        " threads for everyone, the machine was busy with something else, and the run should be repeated.",
        "",
    ]
    return (
        lines
        + ["| name | | version | cores |", "|---|---|---|---:|"]
        + ["| " + " | ".join(r) + " |" for r in rows]
        + [""]
    )


def reasons(run):
    """Why a contender has no figure in a case, or not one of its ways, each reason once, and whose output was wrong."""
    found = {}
    for result in run["results"]:
        for name, entry in result["contenders"].items():
            if entry["status"] != "ok" and name not in run["missing"]:
                key = (name, entry["status"], entry["reason"])
                found.setdefault(key, []).append(result["case"])
            for refused in entry.get("refused", ()):
                found.setdefault((name, "refused", refused), []).append(result["case"])
    lines = []
    for (name, status, reason), cases in sorted(found.items()):
        where = f"`{cases[0]}`" + (f" and {len(cases) - 1} more" if len(cases) > 1 else "")
        what = {"wrong": "wrong", "refused": "one of its ways failed"}.get(status, "no figure")
        lines.append(f"- **{name}**, {what} in {where}: {escape(reason)}")
    return ["## Gaps", "", *lines, ""] if lines else []


def bar_lines(run):
    verdicts = bars.check(run["results"], machine=bars.machine_of(run["context"]))
    if not verdicts:
        return []
    rows = []
    for bar in bars.BARS:
        mine = [v for v in verdicts if v["bar"] == bar.text]
        if not mine:
            continue
        ratios = [v["ratio"] for v in mine if v["ratio"] is not None]
        lowest = f"{min(ratios):.3f}" if ratios else "–"
        rows.append([bar.text, f"{bar.least:.2f}", lowest, f"{sum(v['met'] for v in mine)} of {len(mine)}"])
    return (
        ["## Bars", "", "Speed over that of the best peer of each case.", ""]
        + table(["bar", "asked for", "lowest", "met"], rows)
        + [""]
    )


def lost_lines(run):
    lost = figures.lost_cases(run["results"])
    if not lost:
        return ["## Where a peer wins", "", "Nowhere in this run.", ""] if run["results"] else []
    rows = [
        [f"`{escape(r['case'])}`", name, f"{ratio:.3f}", r["best_peer"], r["contenders"][r["best_peer"]].get("way", "")]
        for r, name, ratio in sorted(lost, key=lambda item: item[2])
    ]
    return ["## Where a peer wins", ""] + table(["case", "libattn", "ratio", "peer", "its way"], rows) + [""]


def way_lines(run):
    """In which way each computed what has precisions: nobody has to guess what bf16 or int8 meant."""
    rows = [
        [f"`{escape(result['case'])}`", name, escape(entry.get("way", "")), f"{entry['difference']:.1e}"]
        for result in run["results"]
        if result.get("suite", "attention") != "attention"
        for name, entry in figures.agreeing(result).items()
        if entry.get("difference") is not None
    ]
    if not rows:
        return []
    text = (
        "Of several ways the fastest was taken; all of them with their times are in the JSON. The difference is from"
        " the float64 reference: of the worst row, relative to its size, or 1 - cosine of the worst sentence, or of the worst gradient of a training step."
    )
    return ["## Ways", "", text, ""] + table(["case", "who", "way", "difference"], rows) + [""]


def memory_lines(run, names):
    if not run["memory"]:
        return []
    rows = []
    for item in run["memory"]:
        cells = [item["contenders"].get(n) for n in names]
        rows.append([f"`{escape(item['case'])}`"] + ["–" if b is None else f"{b / 2**20:.1f}" for b in cells])
    return (
        [
            "## Memory",
            "",
            "MiB by which a first call of the shape raised the resident set of a fresh process, the output included"
            " where the library allocates it.",
            "",
        ]
        + table(["case", *names], rows)
        + [""]
    )


def render(run, plots=()):
    """The whole report as text. `plots` are file names to show."""
    context = run["context"]
    names = [n for n in registry.NAMES if any(n in r["contenders"] for r in run["results"]) or n in run["missing"]]
    present = [n for n in names if n not in run["missing"]]
    peaks = ", ".join(f"{n} {g:.0f}" for n, g in sorted(context["peaks"].items())) or "not measured"
    read = f" Memory is read at {context['read_gb_per_second']:.1f} GB/s." if context.get("read_gb_per_second") else ""
    lines = [
        "# libattn beside other libraries",
        "",
        f"{context['date']}, {context['cpu']}, {context['threads']} threads on {context['cores']} cores,"
        f" {context['system']}, {context['rounds']} rounds. Peaks of this run in GFLOP/s: {peaks}.{read}",
        "",
        "Figures are of the fastest sample, in the unit of each heading; operations are 4 d for each live pair of query"
        " and key, 10 d for gradients, 14 d for both, 4 for each number of a state and token, 6 in delta rules,"
        " and 2 for each weight and token of a product. **Bold** is the"
        " fastest of the case; `x` columns are libattn's speed over that of the best peer; *of peak* is the better libattn figure as a fraction of the"
        " multiply-add peak, the best that was measured between the cases; where a type has no peak of its own it is"
        " that of f32, so that the fraction may exceed 1. In decoding *of read* has the best read bandwidth that was"
        " measured between the cases in its place, where keys and values come from memory, and *ms* is the time of a"
        " token in all layers. Of linear layers times are those of a product with one matrix, and *of read* is there where"
        " they have one row. Columns with % are times of parts of libattn's work, run"
        " alone in the same turns, over that of the whole.",
        "",
    ]
    lines += participants(run, names)
    for dtype in dict.fromkeys((*DTYPES, *PRECISIONS, *CACHE_BYTES)):
        for kind, title in KINDS:
            results = [r for r in run["results"] if r["dtype"] == dtype and r["kind"] == kind]
            if results:
                lines += [f"## {dtype}: {title}, {figures.unit(results[0])}", ""]
                lines += [*case_table(results, present), ""]
    lines += bar_lines(run) + lost_lines(run) + way_lines(run) + memory_lines(run, present) + reasons(run)
    for plot in plots:
        lines += [f"![{plot}]({plot})", ""]
    return "\n".join(lines)
