# SPDX-License-Identifier: Apache-2.0
"""Masks for Transformers: the options say what the numbers of sdpa_mask() say, and no numbers are made."""
import itertools

import libattn
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
libattn_transformers = pytest.importorskip("libattn.transformers")
from transformers import masking_utils as m  # noqa: E402

B, T = 3, 13
LEFT = torch.tensor([0, 4, 2])
PADDINGS = {
    "none": None,
    "ones": torch.ones(B, T, dtype=torch.bool),
    "left": torch.arange(T) >= LEFT[:, None],
    "right": torch.arange(T) < (T - LEFT)[:, None],
    "both": (torch.arange(T) >= LEFT[:, None]) & (torch.arange(T) < T - 3),
    "holes": torch.arange(T) % torch.tensor([2, 3, 5])[:, None] != 1,
    "nothing": torch.arange(T) < torch.tensor([0, 3, T])[:, None],
    "short": torch.arange(T - 4) >= LEFT[:, None],
}
POSITIONS = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3, 4, 5], list(range(T)), [0, 0, 0] + list(range(10))])
LABELS = m.find_packed_sequence_indices(POSITIONS)
NO_LEFT = torch.zeros(B, dtype=torch.int64)


def packed(function):
    return m.and_masks(m.remap_positions_for_packed_sequence(function, POSITIONS), m.packed_sequence_mask_function(LABELS))


FUNCTIONS = {
    "causal": m.causal_mask_function,
    "bidirectional": m.bidirectional_mask_function,
    "window": m.sliding_window_causal_mask_function(4),
    "window of one": m.sliding_window_causal_mask_function(1),
    "wide window": m.sliding_window_causal_mask_function(100),
    "window both ways": m.sliding_window_bidirectional_mask_function(3),
    "chunks": m.chunked_causal_mask_function(5, LEFT),
    "one chunk": m.chunked_causal_mask_function(100, NO_LEFT),
    "packed": packed(m.causal_mask_function),
    "packed windows": packed(m.sliding_window_causal_mask_function(2)),
    "packed chunks": packed(m.chunked_causal_mask_function(2, NO_LEFT)),
}


def seen(mask, tq, tk, options=None):
    """Which keys get a weight from attention()."""
    q, k, v = torch.zeros(B, 1, tq, 8), torch.zeros(B, 1, tk, 8), torch.zeros(B, 1, tk, 8)
    options = mask.options if options is None else options
    return libattn.attention(q, k, v, return_weights=True, **options).weights > 0


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_options_say_what_the_numbers_say(kind, padding):
    places = [(T, T, 0, 0)]
    if not kind.startswith("packed"):
        # A token behind a cache; a few; a static cache; and one of a window, which has dropped its first keys.
        places += [(1, T, T - 1, 0), (4, T, T - 4, 0), (3, T + 5, 6, 0), (2, 7, T - 2, T - 7)]
    for tq, tk, q_offset, kv_offset in places:
        arguments = dict(batch_size=B, q_length=tq, kv_length=tk, q_offset=q_offset, kv_offset=kv_offset,
                         mask_function=FUNCTIONS[kind], attention_mask=PADDINGS[padding])
        mask = libattn_transformers.libattn_mask(**arguments)
        assert isinstance(mask, libattn_transformers.Mask)
        expected = m.sdpa_mask(**arguments, allow_is_causal_skip=False)
        assert torch.equal(seen(mask, tq, tk), expected)
        assert mask.shape == expected.shape and mask.dtype == expected.dtype
        if arguments["attention_mask"] is not None:
            numbers = libattn_transformers.libattn_mask(**arguments | {"attention_mask": PADDINGS[padding].long()})
            assert torch.equal(seen(numbers, tq, tk), expected) and torch.equal(numbers.clone(), expected)
        # What anybody else computes from it.
        assert torch.equal(mask & True, expected) and torch.equal(mask[:, :, :, 1:], expected[:, :, :, 1:])
        dense = mask.options.get("mask")
        assert dense is None or padding in ("holes", "short") and dense.shape == (B, 1, 1, tk)


@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_a_group_at_the_start_is_a_prefix(padding):
    # As PaliGemma has it: images and the question see each other, and padding belongs to them.
    end = torch.tensor([6, 7, 0])
    groups = torch.where(torch.arange(T) < end[:, None], 0, -1)
    function = m.or_masks(m.causal_mask_function, m.blockwise_overlay(groups))
    arguments = dict(batch_size=B, q_length=T, kv_length=T, mask_function=function, attention_mask=PADDINGS[padding])
    mask = libattn_transformers.libattn_mask(**arguments)
    expected = m.sdpa_mask(**arguments, allow_is_causal_skip=False)
    own = PADDINGS[padding] if padding == "left" else torch.ones(B, T, dtype=torch.bool)
    assert "prefix" in mask.options
    assert torch.equal(seen(mask, T, T) & own[:, None, :, None], expected & own[:, None, :, None])


def test_groups_elsewhere_are_numbers():
    groups = torch.tensor([[-1, 0, 0, -1, 1, 1, 1, -1, -1, -1, -1, -1, -1]]).expand(B, T)
    for base in (m.causal_mask_function, m.sliding_window_causal_mask_function(3)):
        arguments = dict(batch_size=B, q_length=T, kv_length=T, attention_mask=PADDINGS["left"],
                         mask_function=m.or_masks(base, m.blockwise_overlay(groups)))
        mask = libattn_transformers.libattn_mask(**arguments)
        assert not isinstance(mask, libattn_transformers.Mask)
        assert torch.equal(mask, m.sdpa_mask(**arguments, allow_is_causal_skip=False))


@pytest.mark.parametrize("combine", [m.and_masks, m.or_masks])
def test_functions_of_the_user_are_numbers(combine):
    function = combine(m.causal_mask_function, lambda batch, head, query, key: (query + key) % 3 == 0)
    for use_vmap in (False, True):
        arguments = dict(batch_size=B, q_length=T, kv_length=T, mask_function=function, use_vmap=use_vmap)
        mask = libattn_transformers.libattn_mask(**arguments)
        assert torch.equal(mask, m.sdpa_mask(**arguments, allow_is_causal_skip=False))
        options = {"mask": mask}
        assert torch.equal(seen(None, T, T, options), mask.expand(B, 1, T, T))


def test_no_memory_for_queries_times_keys():
    # 2**17 tokens: the numbers would have 2**34 bytes.
    t = 1 << 17
    padding = torch.ones(2, t, dtype=torch.bool)
    padding[0, :1000] = False
    for function, attention_mask in itertools.product(
            (m.causal_mask_function, m.bidirectional_mask_function, m.sliding_window_causal_mask_function(4096),
             m.chunked_causal_mask_function(8192, torch.tensor([1000, 0]))), (None, padding, padding.flip(1))):
        mask = libattn_transformers.libattn_mask(2, t, t, mask_function=function, attention_mask=attention_mask)
        # Whole slices, as models take them of keys, are the mask itself.
        for again in (mask, mask.detach(), mask[:, :, :, :t], mask.contiguous(), mask.to("cpu")):
            assert isinstance(again, libattn_transformers.Mask) and again.options == mask.options
        tensors = [x for value in mask.options.values() for x in (value if isinstance(value, tuple) else (value,))
                   if isinstance(x, torch.Tensor)]
        assert sum(x.numel() for x in tensors) <= 5 * t


def test_masks_are_not_written_in_place():
    mask = libattn_transformers.libattn_mask(1, 4, 4)
    with pytest.raises(NotImplementedError, match="in place"):
        mask.fill_(True)
    assert mask.clone().fill_(True).all() and not (mask & True).all()
