# SPDX-License-Identifier: Apache-2.0
"""What a server of a language model does with its cache of keys and values, with NumPy: prompts that come and go, a
prefix that many share, drafts that are taken back, and all of it in 8 bits.

    python examples/python/server_numpy.py

Each result is compared with attention over all tokens of that sequence.
"""
import sys

import numpy as np

import libattn

LAYERS, HEADS, KV_HEADS, D = 2, 8, 2, 64
random = np.random.default_rng(1)
wrong = 0


def tokens(count: int) -> dict[str, np.ndarray]:
    """q, k and v of some tokens, as the projections of a layer would give them."""
    heads = {"q": HEADS, "k": KV_HEADS, "v": KV_HEADS}
    return {name: random.standard_normal((1, n, count, D)).astype(np.float32) for name, n in heads.items()}


def joined(*parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([part[name] for part in parts], axis=2) for name in "qkv"}


def run(cache: libattn.Cache, sequences: list[int], parts: list[dict[str, np.ndarray]]) -> list[np.ndarray]:
    """One step of all of them: prompts and single tokens may be mixed. The outputs of the last layer, by sequence."""
    cache.step(sequences, [part["q"].shape[2] for part in parts])
    batch = joined(*parts)
    for layer in range(LAYERS):
        cache.append(layer, batch["k"], batch["v"])
        out = cache.attend(layer, batch["q"])
    ends = np.cumsum([part["q"].shape[2] for part in parts])[:-1]
    return np.split(out, ends, axis=2)


def compare(what: str, out: np.ndarray, whole: dict[str, np.ndarray], tolerance: float) -> None:
    global wrong
    count = out.shape[2]
    want = libattn.attention(whole["q"][:, :, -count:], whole["k"], whole["v"], causal="bottom-right")
    error = float(np.abs(out - want).max())
    print(f"    {what}: {count} of {whole['q'].shape[2]} tokens, largest difference {error:.1e}")
    wrong += not error < tolerance


def serve(dtype: str, tolerance: float) -> None:
    cache = libattn.Cache(layers=LAYERS, kv_heads=KV_HEADS, dk=D, dtype=dtype, max_tokens=1024, max_sequences=8, page_size=16,
                          num_pages=128)
    print(f"{dtype}: {cache.usage.page_bytes} bytes a page of 16 tokens")

    system = tokens(100)  # a system prompt, which every request begins with
    base = cache.add()
    compare("the prompt that all share", run(cache, [base], [system])[0], system, tolerance)

    requests = [tokens(n) for n in (17, 40, 3)]
    sequences = [cache.fork(base) for _ in requests]  # its pages are shared, not copied
    outputs = run(cache, sequences, requests)
    so_far = [joined(system, request) for request in requests]
    for out, whole in zip(outputs, so_far):
        compare("a request", out, whole, tolerance)
    print(f"    {cache.usage.pages_in_use} pages in use by {cache.usage.num_sequences} sequences of {cache.usage.tokens} tokens")

    # The first request writes on while a new one comes in.
    new, token = cache.fork(base), tokens(1)
    prompt = tokens(25)
    outputs = run(cache, [sequences[0], new], [token, prompt])
    so_far[0] = joined(so_far[0], token)
    compare("a token", outputs[0], so_far[0], tolerance)
    compare("beside a prompt", outputs[1], joined(system, prompt), tolerance)

    # Four drafted tokens, of which the first is accepted.
    drafts = tokens(4)
    compare("drafts", run(cache, [sequences[1]], [drafts])[0], joined(so_far[1], drafts), tolerance)
    cache.truncate(sequences[1], cache.length(sequences[1]) - 3)
    so_far[1] = joined(so_far[1], {name: x[:, :, :1] for name, x in drafts.items()})
    token = tokens(1)
    compare("after one was accepted", run(cache, [sequences[1]], [token])[0], joined(so_far[1], token), tolerance)

    for sequence in (base, new, *sequences):
        cache.remove(sequence)
    assert cache.usage.pages_in_use == 0


def main() -> int:
    for dtype, tolerance in (("float32", 1e-5), ("bfloat16", 0.02), ("int8", 0.05)):
        serve(dtype, tolerance)
    if wrong:
        print(f"{wrong} results are not what they should be", file=sys.stderr)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
