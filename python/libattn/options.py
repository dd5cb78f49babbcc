# SPDX-License-Identifier: Apache-2.0
"""What options of attention() are made of, and their types."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from ._core import Tile

Array = Any
"""An array of NumPy, PyTorch (on the CPU) or JAX, or anything with `__dlpack__` or a buffer."""

Layout = Literal["bhtd", "bthd"]
"""The order of the axes batch, head, token and channel."""

Rotation = Literal["half-split", "interleaved"]
"""Which channels a rotation turns together: c and c + pairs, or 2c and 2c + 1."""


@dataclass(frozen=True, slots=True)
class Window:
    """A sliding window: a query at position p sees the keys p - left to p + right.

    first_tokens keys at the start are seen by every query (Xiao et al. 2023). The tokens in global_tokens, ascending, see
    all and are seen by all (Beltagy et al. 2020). None: no limit on that side.
    """

    left: int | None = None
    right: int | None = None
    first_tokens: int = 0
    global_tokens: Sequence[int] = ()


@dataclass(frozen=True, slots=True, eq=False)
class RelativeBias:
    """A bias for each head and distance, added to the scaled and capped score.

    table: (heads, buckets). kind: 'clipped' has 2 * max_distance + 1 buckets (Shaw et al. 2018), 't5' and
    't5-bidirectional' have those of Raffel et al. 2020, of decoders and encoders.
    """

    table: Array
    kind: Literal["clipped", "t5", "t5-bidirectional"]
    max_distance: int


@dataclass(frozen=True, slots=True, eq=False)
class Disentangled:
    """DeBERTa's terms of content and position (He et al. 2021, section 3.1).

    rel_k, rel_q: float32, (2 * span, d) or (heads, 2 * span, d), or None without that term. delta: the direction of the
    distance that picks the row of rel_q; 'query-key' is what published models need.
    """

    span: int
    rel_k: Array | None = None
    rel_q: Array | None = None
    delta: Literal["query-key", "key-query"] = "query-key"


@dataclass(frozen=True, slots=True, eq=False)
class Rope:
    """Rotations of q and k while they are read (Su et al. 2021).

    q, k: float32, (Tq, 2 * pairs) and (Tk, 2 * pairs), or with axes of batch and heads in front: rows of rope_table().
    """

    q: Array
    k: Array
    layout: Rotation = "half-split"


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """Drafted tokens, the last live keys of each sequence.

    ancestors: uint64, (B, Tq, ceil(tokens / 64)): bit t % 64 of word t / 64 says that the query sees draft t.
    """

    tokens: int
    ancestors: Array


@dataclass(frozen=True, slots=True)
class Dropout:
    """Each weight becomes 0 with probability p, else 1 / (1 - p) times as much.

    Which ones follows from seed, offset and the indices of batch, head, query and key: dropout_keeps(). Take another
    offset for each layer and step.
    """

    p: float
    seed: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class BlockMask:
    """A block-sparse pattern: which blocks of size keys each block of size queries sees.

    The columns of block row r of head h are columns[offsets[n]] to columns[offsets[n + 1] - 1], n = h * rows + r, as in a
    compressed sparse row matrix, ascending. size: a multiple of 16. heads: 1, or those of q. rows: ceil(Tq / size).
    offsets: int64, (heads * rows + 1). columns: int32.
    """

    size: int
    heads: int
    rows: int
    offsets: Array
    columns: Array

    @property
    def blocks(self) -> int:
        """How many are listed."""
        return int(self.offsets[-1])


@dataclass(frozen=True, slots=True, eq=False)
class Quantised:
    """Rows in 8 or 4 bits, of which quantise() makes some: as k, v or both of attention().

    data: int8, float8_e4m3fn, or uint8 with two numbers in each, whole groups of 32 channels. scale: float32, (..., 1),
    or of 'int4' (..., ceil(channels / 32)). channels: of a row.
    """

    data: Array
    scale: Array
    dtype: Literal["int8", "float8_e4m3fn", "int4"]
    channels: int


class PlainScoreOptions(TypedDict, total=False):
    """Options about scores that are the same for all who call attention()."""

    mask: Array | None
    scale: float | None
    temperature: float | None
    head_scale: Array | None
    softcap: float | None
    sinks: Array | None
    alibi: Array | None
    relative_bias: RelativeBias | None
    disentangled: Disentangled | None
    prefix: Array | int | None
    window: Window | tuple[int | None, int | None] | int | None
    block_mask: BlockMask | None
    tree: Tree | None
    scores_of: Literal["default", "int8"] | None
    inputs: Literal["as-given", "may-be-bf16"] | None
    sums: Literal["ordered", "free"] | None
    num_threads: int | None
    isa: str | None


class ScoreOptions(PlainScoreOptions, total=False):
    """Options of attention() that a cache does not know better."""

    score_function: Callable[[Tile], Array | None] | None
    weight_function: Callable[[Tile], Array | None] | None
    dropout: Dropout | None


class PlaceOptions(TypedDict, total=False):
    """Options that say where queries and keys stand, which a cache knows."""

    causal: Literal["top-left", "bottom-right", "offset"] | bool | None
    rope: Rope | None
    query_offset: Array | int | None
    lengths: Array | int | None
    starts: Array | int | None
    segments: Array | tuple[Array, Array] | None
    cu_seqlens: Array | tuple[Array, Array] | None
    block_table: Array | None


class Options(ScoreOptions, PlaceOptions, total=False):
    """Options of attention()."""
