# SPDX-License-Identifier: Apache-2.0
"""
The report as pictures, each as SVG for pages and PNG for everything else:
throughput for each case, speed over the best peer, fraction of the peak, and
time and memory against T. Needs Matplotlib; draws to files only.
"""

from . import figures, registry

# Colours that people with colour blindness can tell apart (Okabe & Ito), libattn's first.
COLOURS = ("#d55e00", "#e69f00", "#0072b2", "#56b4e9", "#009e73", "#cc79a7", "#999933", "#882255", "#666666", "#bbbbbb")
DTYPES = ("f32", "bf16", "f16")


def colour(name):
    return COLOURS[registry.NAMES.index(name) % len(COLOURS)]


def draw(run, out):
    """Draws what the run has figures for; returns the names of the SVG files in the order of the report."""
    import matplotlib  # pylint: disable=import-outside-toplevel

    matplotlib.use("Agg")
    # Without these, files differ from run to run though the figures do not.
    matplotlib.rcParams.update({"svg.hashsalt": "libattn", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel

    saved = []

    def save(figure, name):
        figure.savefig(out / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
        figure.savefig(out / f"{name}.png", bbox_inches="tight", dpi=130)
        pyplot.close(figure)
        saved.append(f"{name}.svg")

    # Layers and models have their tables and a place in the plot of ratios.
    attention = [r for r in run["results"] if r.get("suite", "attention") == "attention"]
    decoding = [r for r in run["results"] if r.get("suite") == "decode"]
    for dtype in dict.fromkeys(r["dtype"] for r in decoding):
        results = [r for r in decoding if r["dtype"] == dtype and figures.agreeing(r)]
        if results:
            save(bandwidth(pyplot, results, dtype), f"bandwidth-{dtype}")
    for dtype in DTYPES:
        results = [r for r in attention if r["dtype"] == dtype and figures.agreeing(r)]
        if results:
            save(throughput(pyplot, results, dtype), f"throughput-{dtype}")
            save(fractions(pyplot, results, dtype, run["context"]["peaks"]), f"fraction-{dtype}")
    compared = [r for r in run["results"] if r["ratios"]]
    if compared:
        save(ratios(pyplot, compared), "ratio")
    for dtype in DTYPES:
        results = [r for r in run["results"] if r["dtype"] == dtype and r["series"] and figures.agreeing(r)]
        # A curve needs two points.
        if len({r["tokens"] for r in results}) > 1:
            save(time_against_tokens(pyplot, results, dtype), f"time-{dtype}")
    if run["memory"]:
        save(memory_against_tokens(pyplot, run["memory"]), "memory")
    return saved


def label(result):
    """A case without what the title says already."""
    return result["case"].split("/", 1)[1].replace("causal:none", "dense").replace("causal:top-left", "causal")


def contenders_of(results, wanted=figures.agreeing):
    present = {name for r in results for name in wanted(r)}
    return [n for n in registry.NAMES if n in present]


def throughput(pyplot, results, dtype):
    return dots(
        pyplot,
        results,
        "gflops",
        ("peak_gflops", "multiply-add peak"),
        f"Throughput, {dtype}",
        "GFLOP/s (further right is faster)",
    )


def bandwidth(pyplot, results, dtype):
    return dots(
        pyplot,
        results,
        "gb_per_second",
        ("read_gb_per_second", "read bandwidth"),
        f"Decoding, {dtype}",
        "GB/s of keys and values (further right is faster)",
    )


def dots(pyplot, results, key, limit, title, unit):
    """
    A row for each case, a dot for each contender: ten bars in each of forty rows could not be read. `key` is what is
    drawn of an entry, `limit` a result's key of what the machine can do, and the text for it.
    """
    height = 1.2 + 0.3 * len(results)
    chart, axes = pyplot.subplots(figsize=(8.5, height))
    names = contenders_of(results)
    for name in names:
        points = [
            (figures.agreeing(r)[name][key], y) for y, r in enumerate(results) if name in figures.agreeing(r)
        ]
        own = registry.row(name).own
        axes.scatter(
            *zip(*points),
            color=colour(name),
            label=registry.row(name).title,
            s=42 if own else 22,
            marker="D" if own else "o",
            zorder=4 if own else 3,
        )
    limits = [(r[limit[0]], y) for y, r in enumerate(results) if r.get(limit[0])]
    if limits:
        axes.scatter(*zip(*limits), color="black", marker="|", s=80, label=limit[1], zorder=2)
    rows(axes, results, title, unit)
    axes.set_xlim(left=0)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return chart


def fractions(pyplot, results, dtype, peaks):
    """Held against the peak of f32 where the type has none of its own, which the title then says."""
    own_peak = any(name.startswith(dtype + "/") for name in peaks)
    title = f"Fraction of the {dtype if own_peak else 'f32'} multiply-add peak, {dtype}"
    chart, axes = pyplot.subplots(figsize=(8.5, 1.2 + 0.3 * len(results)))
    best = [(figures.best(r, own=True), figures.best(r, own=False)) for r in results]
    for names, text, shade, shift in (
        ([own for own, _ in best], "libattn's better figure", COLOURS[0], -0.2),
        ([peer for _, peer in best], "best peer", COLOURS[2], 0.2),
    ):
        values = [
            (r["contenders"][n].get("fraction") or 0.0) if n is not None else 0.0
            for r, n in zip(results, names, strict=True)
        ]
        axes.barh([y + shift for y in range(len(results))], values, height=0.38, color=shade, label=text, zorder=3)
    rows(axes, results, title, "GFLOP/s over the best peak of the run")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return chart


def ratios(pyplot, results):
    chart, axes = pyplot.subplots(figsize=(8.5, 1.2 + 0.3 * len(results)))
    names = contenders_of(results, lambda r: r["ratios"])
    for name in names:
        points = [(r["ratios"][name], y) for y, r in enumerate(results) if name in r["ratios"]]
        axes.scatter(*zip(*points), color=colour(name), marker="D", label=registry.row(name).title, zorder=3)
    axes.axvline(1.0, color="black", linewidth=1)
    for y, r in enumerate(results):
        axes.text(1.01, y, r["best_peer"], transform=axes.get_yaxis_transform(), va="center", fontsize=8)
    rows(
        axes,
        results,
        "Speed over that of the best peer, which is named on the right",
        "ratio (right of the line libattn is faster)",
    )
    axes.set_yticks(range(len(results)), [f"{r['dtype']} {label(r)}" for r in results])
    axes.set_xlim(left=min(0.4, 0.9 * min(min(r["ratios"].values()) for r in results)))
    chart.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2, frameon=False)
    return chart


def rows(axes, results, title, unit):
    """One case in each row, the first on top."""
    axes.set_yticks(range(len(results)), [label(r) for r in results])
    axes.set_ylim(len(results) - 0.4, -0.6)
    axes.set_title(title, loc="left")
    axes.set_xlabel(unit)


def panels(pyplot, series):
    """One panel for each series, in a row of two."""
    lines = (len(series) + 1) // 2
    chart, grid = pyplot.subplots(
        lines, min(2, len(series)), figsize=(5.2 * min(2, len(series)), 3.6 * lines), squeeze=False
    )
    flat = [axes for line in grid for axes in line]
    for axes in flat[len(series) :]:
        axes.set_visible(False)
    return chart, flat


def series_of(items):
    """{series: items in the order of T}."""
    found = {}
    for item in sorted(items, key=lambda i: i["tokens"]):
        found.setdefault(item["series"], []).append(item)
    return found


def curve(axes, points, name):
    own = registry.row(name).own
    axes.plot(
        *zip(*points),
        color=colour(name),
        label=registry.row(name).title,
        marker="D" if own else "o",
        markersize=4,
        linewidth=2.2 if own else 1.2,
        zorder=4 if own else 3,
    )


def finish(chart, flat, count, title):
    """One legend for all panels, below them."""
    handles = {}
    for axes in flat[:count]:
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(text, handle)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("T")
    chart.suptitle(title, x=0.02, ha="left")
    chart.tight_layout()
    chart.legend(
        handles.values(), handles.keys(), loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=4, frameon=False
    )
    return chart


def time_against_tokens(pyplot, results, dtype):
    series = series_of(results)
    chart, flat = panels(pyplot, series)
    for axes, (text, items) in zip(flat, series.items(), strict=False):
        for name in contenders_of(items):
            curve(
                axes,
                [
                    (r["tokens"], 1e3 * figures.agreeing(r)[name]["seconds"])
                    for r in items
                    if name in figures.agreeing(r)
                ],
                name,
            )
        axes.set_title(text, loc="left")
        axes.set_ylabel("ms (lower is faster)")
    return finish(chart, flat, len(series), f"Time of a call, {dtype}, d = 64")


def memory_against_tokens(pyplot, memory):
    series = series_of(memory)
    chart, flat = panels(pyplot, series)
    for axes, (text, items) in zip(flat, series.items(), strict=False):
        for name in registry.NAMES:
            # What is not there at all cannot be drawn on a logarithmic axis: a page stands for nothing.
            points = [
                (i["tokens"], max(i["contenders"][name], 4096) / 2**20)
                for i in items
                if i["contenders"].get(name) is not None
            ]
            if points:
                curve(axes, points, name)
        axes.set_title(text, loc="left")
        axes.set_ylabel("MiB (lower is less)")
    return finish(chart, flat, len(series), "Growth of the resident set by a first call, d = 64")
