# SPDX-License-Identifier: Apache-2.0
"""
What differs between the suites on the coordinator's side: the arrays that all
contenders are given, the rows of the output that are compared, how they have
to be, and in which unit a report shows speed.
"""

from collections.abc import Callable
from dataclasses import dataclass

from . import (
    backward,
    decode,
    embedding,
    generate,
    layer,
    linear,
    linear_attention,
    reference,
    tensors,
    transformer_models,
)


@dataclass(frozen=True)
class Suite:
    """
    make(case) gives {name: array}; pick_rows(case) an array of indices, a row each; expect(case, arrays, rows)
    what stands there; disagree(case, output, expected, tolerance=None) (difference, None or what is wrong), with
    another tolerance than that of the case's type; flops(case, arrays)
    the work; items(case, arrays) how many things a call computes, for rates, or None; bytes(case) how much it has to
    read where that is what its time is made of, or None.
    """

    make: Callable
    pick_rows: Callable
    expect: Callable
    disagree: Callable
    flops: Callable
    items: Callable = lambda case, arrays: None
    bytes: Callable = lambda case: None


SUITES = {
    "attention": Suite(
        tensors.make,
        reference.pick_rows,
        reference.reference_rows,
        reference.disagreement,
        lambda case, arrays: case.flops(tensors.mask_sum(case, arrays)),
    ),
    "decode": Suite(
        decode.make,
        decode.pick_rows,
        decode.reference_rows,
        decode.disagreement,
        lambda case, arrays: case.flops(),
        bytes=lambda case: case.bytes(),
    ),
    "backward": Suite(
        backward.make,
        backward.pick_rows,
        backward.reference_rows,
        backward.disagreement,
        lambda case, arrays: case.flops(),
    ),
    "linear-attention": Suite(
        linear_attention.make,
        linear_attention.pick_rows,
        linear_attention.reference_rows,
        reference.disagreement,
        lambda case, arrays: case.flops(),
        lambda case, arrays: 1,
    ),
    "linear": Suite(
        linear.make,
        linear.pick_rows,
        linear.reference_rows,
        linear.disagreement,
        lambda case, arrays: case.flops(),
        lambda case, arrays: case.matrices,
        bytes=lambda case: case.bytes(),
    ),
    "mha": Suite(
        layer.make,
        layer.pick_rows,
        layer.reference_rows,
        reference.disagreement,
        lambda case, arrays: case.flops(),
    ),
    "embed": Suite(
        embedding.make,
        embedding.pick_rows,
        embedding.reference_rows,
        embedding.disagreement,
        embedding.flops,
        lambda case, arrays: len(arrays["offsets"]) - 1,
    ),
    "generate": Suite(
        generate.make,
        generate.pick_rows,
        generate.reference_rows,
        generate.disagreement,
        generate.flops,
        generate.items,
    ),
    "transformers": Suite(
        transformer_models.make,
        transformer_models.pick_rows,
        transformer_models.reference_rows,
        transformer_models.disagreement,
        transformer_models.flops,
        transformer_models.items,
    ),
}
