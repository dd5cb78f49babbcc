# SPDX-License-Identifier: Apache-2.0
"""libattn.torch.distributed: processes of gloo against one process, errors on all of them, and those that die."""
import dataclasses
import gc
import itertools
import os
import sys
import threading
import time

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist
import torch.multiprocessing

import libattn
import libattn.torch
from libattn.torch.distributed import Carrier, Cut, Message, attention

CASES = 30


def spawned(work, ranks, folder, *arguments):
    """Runs work(rank, ranks, *arguments) in so many processes of a group; an exception of one is this one's."""
    store = folder / f"store-{len(list(folder.iterdir()))}"
    torch.multiprocessing.start_processes(_begin, (work, ranks, str(store), arguments), ranks, start_method="spawn")


def _begin(rank, work, ranks, store, arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    work(rank, ranks, *arguments)
    dist.destroy_process_group()


def error_of(*arguments, **options):
    with pytest.raises((ValueError, NotImplementedError, OSError)) as caught:
        attention(*arguments, **options)
    return caught.value


# --------------------------------------------------------------------------- against one process --

def drawn(seed):
    """Tensors of a whole sequence, options, those of which have to be cut, and a cut."""
    generator = torch.Generator().manual_seed(seed)

    def pick(*choices):
        return choices[int(torch.randint(len(choices), (), generator=generator))]

    def number(low, high):
        return int(torch.randint(low, high + 1, (), generator=generator))

    def numbers(*shape, dtype=torch.float32):
        return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()

    batch, heads, groups, dk, dv = number(1, 2), pick(1, 2, 4), pick(1, 2), pick(8, 16, 17), pick(8, 24)
    tokens = pick(number(0, 5), number(6, 300))
    same = number(0, 2) > 0
    keys = tokens if same else number(0, 300)
    dtype = pick(torch.float32, torch.float32, torch.bfloat16)
    q = numbers(batch, heads * groups, tokens, dk, dtype=dtype)
    k, v = numbers(batch, heads, keys, dk, dtype=dtype), numbers(batch, heads, keys, dv, dtype=dtype)
    options, cut = {}, {}
    form = pick("plain", "causal", "causal", "window", "lengths", "segments", "tables", "rope", "mask", "ragged", "dropout", "pattern",
                "global", "terms")
    if form == "causal":
        options["causal"] = pick("top-left", "bottom-right")
    elif form == "window":
        options.update(causal=pick(None, "top-left"), window=(number(0, 60), number(0, 20)))
    elif form == "lengths":
        options.update(lengths=[number(0, keys) for _ in range(batch)], softcap=2.0, temperature=1.5)
    elif form == "segments":
        labels = torch.randint(3, (batch, max(tokens, keys)), generator=generator).sort().values
        options["segments"] = (labels[:, :tokens], labels[:, :keys])
    elif form == "tables":
        options.update(sinks=numbers(heads * groups), head_scale=numbers(heads * groups), alibi=numbers(heads * groups),
                       relative_bias=libattn.RelativeBias(numbers(heads * groups, 9), "clipped", 4))
    elif form == "rope" and dk % 2 == 0:
        cut["rope"] = (torch.from_numpy(libattn.rope_table(tokens, pairs=dk // 2)),
                       torch.from_numpy(libattn.rope_table(keys, pairs=dk // 2)))
    elif form == "mask":
        cut["mask"] = torch.rand(batch, 1, tokens, keys, generator=generator) < 0.5
    elif form == "ragged" and batch == 1 and same:
        options.update(cu_seqlens=torch.tensor([0, tokens // 3, tokens // 2, tokens]), causal=True)
    elif form == "dropout":
        options.update(dropout=libattn.Dropout(0.3, seed, 5), causal=pick(None, "bottom-right"))
    elif form == "pattern" and tokens and keys:
        options["block_mask"] = libattn.patterns.bigbird(tokens, keys, size=16, window=1, global_blocks=1, random=1, seed=seed,
                                                         heads=pick(1, heads * groups))
    elif form == "global" and keys > 20:
        options["window"] = libattn.Window(number(0, 30), number(0, 5), number(0, 9), [3, number(4, 20)])
    elif form == "terms":
        options["disentangled"] = libattn.Disentangled(7, numbers(pick(1, heads * groups), 14, dk),
                                                       pick(None, numbers(heads * groups, 14, dk)))
    placement = pick("contiguous", "zigzag", "striped")
    head_ranks = pick(0, 1)
    stripe = 7 if placement == "striped" else 0
    return (q, k, v), options, cut, Cut(placement, stripe, head_ranks=head_ranks), pick("bhtd", "bthd"), form


def leaves(options):
    given = {name: options[name] for name in ("sinks", "head_scale", "alibi") if name in options}
    if "relative_bias" in options:
        given["relative_bias"] = options["relative_bias"].table
    if "disentangled" in options:
        terms = options["disentangled"]
        given |= {name: x for name, x in (("rel_k", terms.rel_k), ("rel_q", terms.rel_q)) if x is not None}
    return given


def gradients(tensors, options, out, lse, weights):
    every = [*tensors, *leaves(options).values()]
    seen = torch.isfinite(lse)
    total = (out.float() * weights).sum() + (lse.where(seen, 0) * 0.25).sum()
    return torch.autograd.grad(total, every, allow_unused=True, materialize_grads=True)


def agree(name, got, expected, narrow):
    limit = 2e-2 if narrow else 2e-5
    torch.testing.assert_close(got.float(), expected.float(), rtol=limit, atol=limit * max(1.0, float(
        expected.abs().max()) if expected.numel() else 1.0), msg=lambda text: f"{name}: {text}")


def compare(rank, ranks):
    for seed in range(CASES):
        (q, k, v), options, cutting, cut, layout, form = drawn(seed)
        whole = dict(options)
        mine = dict(options)
        rows = cut.positions(q.shape[2])
        if "rope" in cutting:
            whole["rope"] = libattn.Rope(*cutting["rope"])
            mine["rope"] = libattn.Rope(*(cut.of(x) for x in cutting["rope"]))
        if "mask" in cutting:
            whole["mask"], mine["mask"] = cutting["mask"], cutting["mask"][:, :, rows]
        out, lse = libattn.torch.attention(q, k, v, return_lse=True, **whole)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed))
        expected = gradients((q, k, v), whole, out, lse, weights)
        local = [cut.of(x.detach()).requires_grad_() for x in (q, k, v)]
        given = [x.transpose(1, 2) for x in local] if layout == "bthd" else local
        own, own_lse = attention(*given, cut=cut, return_lse=True, layout=layout, **mine)
        if layout == "bthd":
            own = own.transpose(1, 2)
        name = f"case {seed}, {form}, {ranks} ranks, {cut}"
        narrow = q.dtype != torch.float32
        agree(name + ": out", own, cut.of(out), narrow)
        agree(name + ": lse", own_lse.nan_to_num(neginf=-1e9), lse[:, :, rows].nan_to_num(neginf=-1e9), narrow)
        got = gradients(local, mine, own, own_lse, weights[:, :, rows])
        for n, (mine_, all_) in enumerate(zip(got, expected)):
            agree(f"{name}: gradient {n}", mine_, cut.of(all_) if n < 3 else all_, narrow)
        again = attention(*given, cut=cut, layout=layout, **mine)
        assert torch.equal(again.transpose(1, 2) if layout == "bthd" else again, own), f"{name}: other bits"


@pytest.mark.parametrize("ranks", [3, 4])
def test_is_that_of_one_process(ranks, tmp_path):
    spawned(compare, ranks, tmp_path)


# ------------------------------------------------------------------------------ groups and errors --

def in_groups(rank, ranks):
    x = torch.randn(1, 2, 40, 8, generator=torch.Generator().manual_seed(1))
    half = dist.new_group([2, 1])
    if rank:
        assert error_of(x, x, x, group=dist.GroupMember.NON_GROUP_MEMBER).args[0].startswith("this process is not in group")
        cut = Cut("zigzag")
        local = cut.of(x, half)
        out = attention(local, local, local, group=half, cut=cut, causal=True)
        whole = libattn.torch.attention(x, x, x, causal=True)
        torch.testing.assert_close(out, cut.of(whole, half))
        head = local[0, 1]  # (T, d)
        out, lse = attention(head, head, head, group=half, cut=cut, causal=True, return_lse=True)
        torch.testing.assert_close(out, cut.of(whole, half)[0, 1])
        assert lse.shape == out.shape[:1]
        tokens_first = local[0].transpose(0, 1)  # (T, H, d)
        out, lse = attention(tokens_first, tokens_first, tokens_first, group=half, cut=cut, causal=True, layout="bthd",
                             return_lse=True)
        torch.testing.assert_close(out.transpose(0, 1), cut.of(whole, half)[0])
        assert lse.shape == (2, len(out))
        with torch.autocast("cpu", torch.bfloat16):
            assert attention(local, local, local, group=half, cut=cut).dtype == torch.bfloat16
    dist.barrier()


def nobody_refuses(rank, ranks):
    with pytest.raises(ValueError, match="no rank has tensors for a plan"):
        libattn._core.Ranks(Carrier(None), dataclasses.asdict(Cut()), 0, 0).refuse(None)


def in_error(rank, ranks):
    x, y = torch.randn(1, 4, 10, 8), torch.randn(1, 4, 10, 8, requires_grad=True)
    mask = torch.zeros(10, 20, requires_grad=True)
    only = rank == 1
    expected = {
        "k has 5 axes": lambda: error_of(x, x[None] if only else x, x),
        "k.shape[2] is 10; expected 7, tokens that this rank holds": lambda: error_of(x, x[:, :, :3] if only else x, x),
        "causal is 'bottom'": lambda: error_of(x, x, x, causal="bottom" if only else None),
        "there is no option": lambda: error_of(x, x, x, **({"casual": True} if only else {})),
        "params of this rank are not those of rank 0": lambda: error_of(x, x, x, scale=0.5 if only else 0.25),
        "config of this rank are not those of rank 0": lambda: error_of(x, x, x, cut=Cut("zigzag" if only else "contiguous")),
        "placement is 'spiral'": lambda: error_of(x, x, x, cut=Cut("spiral") if only else Cut()),
        "stripe is 4": lambda: error_of(x, x, x, cut=Cut(stripe=4 if only else 0)),
        "cut is a str; expected a Cut": lambda: error_of(x, x, x, cut="zigzag" if only else Cut()),
        "timeout is 'long'": lambda: error_of(x, x, x, cut=Cut(timeout="long") if only else Cut()),
        "cut.timeout is -1": lambda: error_of(x, x, x, cut=Cut(timeout=-1.0 if only else 0.0)),
        "cut.head_ranks is 3": lambda: error_of(x, x, x, cut=Cut(head_ranks=3)),
        "q is torch.float64": lambda: error_of(x.double() if only else x, x, x),
        "mask requires a gradient": lambda: error_of(y, y, y, mask=mask if only else mask.detach()),
        "layout is 'thbd'": lambda: error_of(x, x, x, layout="thbd" if only else "bhtd"),
        "params of this rank are": lambda: error_of(x, x, x, dropout=libattn.Dropout(0.5, 1, rank)),
        "dropout is 1.5": lambda: error_of(x, x, x, dropout=1.5 if only else 0.5),
        "block_table": lambda: error_of(x, x, x, block_table=torch.zeros(1, 1, dtype=torch.int32)),
        "score_function is a function": lambda: error_of(x, x, x, score_function=print),
    }
    for sentence, call in expected.items():
        error = call()
        told = [None] * ranks
        dist.all_gather_object(told, f"{type(error).__name__}: {error}")
        assert len(set(told)) == 1, told
        assert sentence in told[0], told[0]
    out = attention(y, y, y)
    out.sum().backward()  # and all can go on
    assert torch.isfinite(y.grad).all()
    # What a probability drops follows from what all ranks draw, whatever state their generators are in.
    torch.manual_seed(rank)
    kept = [attention(x, x, torch.ones(1, 4, 10, 1), dropout=0.5) for _ in range(2)]
    assert not torch.equal(*kept)
    torch.manual_seed(rank)
    assert torch.equal(attention(x, x, torch.ones(1, 4, 10, 1), dropout=0.5), kept[0])


def test_groups_and_errors(tmp_path):
    spawned(in_groups, 3, tmp_path)
    spawned(in_error, 2, tmp_path)


# ---------------------------------------------------------------------------- those that go or stall --

def gone(rank, ranks, how, other_has_its_error):
    x = torch.randn(1, 2, 500, 16)
    attention(x, x, x)
    if rank == 1:
        start, begun = Carrier.start, itertools.count()

        def late(self, number):
            if next(begun) == 5:
                if how == "dies":
                    os._exit(0)
                while not other_has_its_error.exists():
                    time.sleep(0.05)
            start(self, number)

        Carrier.start = late
    error = error_of(x, x, x, cut=Cut(timeout=60.0 if how == "dies" or rank else 1.0))
    other_has_its_error.touch()
    assert isinstance(error, ConnectionError)
    assert rank or ("did not come in 1 seconds, cut.timeout" if how == "stalls" else "failed: ") in str(error)
    os._exit(0)  # without the farewell of a group that has lost one


@pytest.mark.parametrize("how", ["dies", "stalls"])
def test_a_lost_peer_ends_the_call(how, tmp_path):
    (tmp_path / "marks").mkdir()
    spawned(gone, 2, tmp_path, how, tmp_path / "marks" / "ended")


def interrupted(rank, ranks):
    nobody_refuses(rank, ranks)
    x = torch.randn(1, 2, 10, 8)
    start = Carrier.start

    def ended(self, number):
        raise KeyboardInterrupt

    Carrier.start = ended
    with pytest.raises(KeyboardInterrupt):
        attention(x, x, x)
    Carrier.start = start


def test_ctrl_c_is_seen(tmp_path):
    spawned(interrupted, 1, tmp_path)


class SlowEvent(threading.Event):
    def set(self):
        super().set()
        while True:
            time.sleep(0.01)


def in_a_hurry(rank, ranks):
    init = Carrier.__init__

    def slow_to_end(self, group):
        init(self, group)
        self._some_ended = SlowEvent()

    Carrier.__init__ = slow_to_end
    x = torch.randn(1, 2, 40, 8)
    attention(x, x, x)
    waiting = [frame for frame in sys._current_frames().values() if isinstance(frame.f_locals.get("self"), SlowEvent)]
    assert waiting
    del waiting
    assert not [x for x in gc.get_objects() if isinstance(x, Carrier | Message)]


def test_a_program_may_end_before_the_threads_of_its_messages(tmp_path):
    for _ in range(3):
        spawned(in_a_hurry, 2, tmp_path)


# ------------------------------------------------------------------------------------------- cuts --

@pytest.mark.parametrize("cut", [Cut(), Cut("zigzag"), Cut("striped", 3)])
@pytest.mark.parametrize(("tokens", "ranks"), [(0, 2), (1, 3), (29, 4), (64, 1)])
def test_ranges_are_a_partition(cut, tokens, ranks):
    held = [range(first, first + count) for rank in range(ranks) for first, count in cut.ranges(tokens, ranks, rank)]
    assert sorted(itertools.chain(*held)) == list(range(tokens))


def test_ranges_refuse():
    for cut, arguments, sentence in (
            (Cut("spiral"), (8, 2, 0), "placement is 'spiral'; expected 'contiguous', 'zigzag', 'striped'"),
            (Cut(wire="float8"), (8, 2, 0), "wire is 'float8'"), (Cut(head_ranks=-1), (8, 2, 0), "head_ranks is -1"),
            (Cut(), (-1, 2, 0), "tokens"), (Cut(), (8, 0, 0), "ranks"), (Cut(), (8, 2, 2), "rank"),
            (Cut(), (8, 2**31, 0), "ranks is 2147483648")):
        with pytest.raises(ValueError, match=sentence):
            cut.ranges(*arguments)


def test_outside_of_a_group():
    x = torch.zeros(1, 1, 2, 4)
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        attention(x, x, x)
