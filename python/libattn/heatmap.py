# SPDX-License-Identifier: Apache-2.0
"""Pictures of weights, by matplotlib."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .options import Array


def heatmap(weights: Array, *, queries: Sequence[str] | None = None, keys: Sequence[str] | None = None, ax: Any = None,
            cmap: str = "viridis", vmax: float | None = None, colorbar: bool = True, **options: Any) -> Any:
    """Draws weights as a picture: a row for each query, a column for each key.

    Args:
        weights: (Tq, Tk), or (heads, Tq, Tk), which is averaged; a further axis in front has the length 1.
        queries, keys: labels of the axes, such as tokens.
        ax: matplotlib's axes to draw on; None: a new figure's.
        cmap: the name of a colour map.
        vmax: the weight that has the last colour; None: the largest.
        colorbar: whether to draw one beside it.
        options: of Axes.imshow().

    Returns:
        The axes. ImportError: there is no matplotlib.
    """
    numbers = np.asarray(weights.detach() if hasattr(weights, "detach") else weights, np.float32)
    while numbers.ndim > 3 and numbers.shape[0] == 1:
        numbers = numbers[0]
    if numbers.ndim == 3:
        numbers = numbers.mean(0)
    if numbers.ndim != 2:
        raise ValueError(f"weights has the shape {np.shape(weights)}; expected (Tq, Tk) or (heads, Tq, Tk)")
    for name, labels, size in (("queries", queries, numbers.shape[0]), ("keys", keys, numbers.shape[1])):
        if labels is not None and len(labels) != size:
            raise ValueError(f"{name} has {len(labels)} labels; expected {size}")
    from matplotlib import pyplot

    if ax is None:
        _, ax = pyplot.subplots()
    image = ax.imshow(numbers, **{"cmap": cmap, "vmin": 0, "vmax": vmax, "interpolation": "nearest", "aspect": "auto"} | options)
    ax.set_xlabel("key")
    ax.set_ylabel("query")
    if keys is not None:
        ax.set_xticks(range(len(keys)), keys, rotation=90)
    if queries is not None:
        ax.set_yticks(range(len(queries)), queries)
    if colorbar:
        ax.figure.colorbar(image, ax=ax, label="weight")
    return ax
