# SPDX-License-Identifier: Apache-2.0
"""Attention over sequences that are cut among the processes of torch.distributed.

    import torch.distributed as dist
    from libattn.torch.distributed import Cut, attention

    dist.init_process_group("gloo")
    cut = Cut("zigzag")                                  # causal: all ranks have as much to do
    q, k, v = (cut.of(x) for x in (q, k, v))             # this rank's tokens, where each rank has the whole; or read them
    out = attention(q, k, v, group=None, cut=cut, causal=True)     # of these tokens, over the keys of all ranks
    out.sum().backward()

Ring attention (Liu et al. 2023) and head parallelism (Jacobs et al. 2023), as of libattn_mpi, whose plans these are;
docs/cluster.md says how they work.
"""
from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, Unpack, overload

import torch
import torch.distributed as dist

from .. import _core
from .._arrays import missing_axes
from ..attention import gradients_of
from ..options import Dropout, Layout
from .call import FLOATS, Options, apart, check, requires_grad
from .ops import GRADIENTS, TENSORS, core_options, rows_of

Group = dist.ProcessGroup | None

SUMMED = ("head_scale", "sinks", "alibi", "bias_table", "rel_k", "rel_q")
"""Options with gradients, which are sums over all ranks' queries."""


@dataclass(frozen=True)
class Cut:
    """How a sequence is cut among ranks; the same on all of them.

    placement: which tokens a rank holds. 'contiguous': as many neighbours for each, for full attention, windows and
        documents. 'zigzag': of twice as many pieces as ranks rank r has the pieces r and 2 * ranks - 1 - r, with which all
        have as much to do under causality. 'striped': stripes of `stripe` tokens, dealt out in turn.
    stripe: tokens of a stripe; 0: 512.
    wire: how keys and values travel: 'as-given', in their types, or 'bfloat16'.
    head_ranks: ranks of a group that share heads out, while keys travel between groups alone; 1: none do; 0: chosen, so
        that least is waited for.
    timeout: seconds that a rank waits for others in one place; 0: as long as the process group does.
    """

    placement: Literal["contiguous", "zigzag", "striped"] = "contiguous"
    stripe: int = 0
    wire: Literal["as-given", "bfloat16"] = "as-given"
    head_ranks: int = 0
    timeout: float = 0.0

    def ranges(self, tokens: int, ranks: int, rank: int) -> list[tuple[int, int]]:
        """The tokens of a rank, of a sequence of so many: (first, count) of neighbours, in ascending order."""
        return _core.ranges(asdict(self), tokens, ranks, rank)

    def positions(self, tokens: int, group: Group = None) -> torch.Tensor:
        """The positions of this rank's tokens, int64."""
        rank, ranks = place_in(group)
        parts = [torch.arange(first, first + count) for first, count in self.ranges(tokens, ranks, rank)]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)

    def of(self, x: torch.Tensor, group: Group = None, axis: int = -2) -> torch.Tensor:
        """This rank's tokens of a tensor of the whole sequence, a copy; axis: that of the tokens."""
        return x.index_select(axis, self.positions(x.shape[axis], group))


@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, group: Group = None, cut: Cut = Cut(),
              return_lse: Literal[False] = False, layout: Layout = "bhtd", **options: Unpack[Options]) -> torch.Tensor: ...


@overload
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, group: Group = None, cut: Cut = Cut(),
              return_lse: Literal[True], layout: Layout = "bhtd",
              **options: Unpack[Options]) -> tuple[torch.Tensor, torch.Tensor]: ...


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, group: Group = None, cut: Cut = Cut(),
              return_lse: bool = False, layout: Layout = "bhtd", **options: Any) -> Any:
    """libattn.torch.attention() of a sequence that is cut among processes: this rank's queries over all ranks' keys.

    Collective: all processes of the group call it, in the same order, and the backward pass, too. If an argument of one is
    wrong, or options differ, all get the error of the first rank that has one, and nothing has been computed.

    Args:
        q, k, v, layout: those of libattn.torch.attention(), with this rank's tokens, as Cut.ranges() has them of the whole
            sequence. Its length is the sum of all ranks'.
        group: a process group of torch.distributed that can carry tensors on the CPU, as gloo can; None: all processes.
        cut: who holds what.
        return_lse: lse, too.
        options: those of libattn.torch.attention(). Tables of a Rope and a mask's queries are of this rank's tokens; all
            else is that of the whole sequence and the same on all ranks: lengths, segments, cu_seqlens, a mask's keys.
            Without trees and block tables. Where dropout is a probability, what is dropped follows from the generators
            of all ranks. Gradients of head_scale, sinks, alibi, a RelativeBias and a Disentangled are sums over all
            ranks' queries, which every rank gets.

    Returns:
        out, or (out, lse), of this rank's tokens. Its bits depend on the number of ranks by rounding alone, and on nothing
        else.

    Raises:
        ValueError, NotImplementedError, MemoryError: as libattn.torch.attention(), on all ranks, with the rank's number.
        ConnectionError: a message has failed, or did not come in time. What was received for this call stays allocated.
    """
    carrier = Carrier(group)
    problem, tensors, numbers, lengths, timeout = None, dict[str, torch.Tensor](), dict[str, Any](), [0, 0], 0.0
    draws, key = False, [0, 0]
    try:
        if not isinstance(cut, Cut):
            raise ValueError(f"cut is a {type(cut).__qualname__}; expected a Cut")
        cut.ranges(0, carrier.ranks, carrier.rank)
        timeout = float(cut.timeout)
        tensors, numbers = checked(q, k, v, options, layout)
        if torch.is_autocast_enabled("cpu"):
            q, k, v = (x.to(torch.get_autocast_dtype("cpu")) for x in (q, k, v))
        draws = "dropout_key" in tensors and not isinstance(options["dropout"], Dropout)
        if draws:  # of each rank's draw as many bits as leave room for the sum
            key = [number >> 16 for number in tensors["dropout_key"].tolist()]
        axis = -2 if layout == "bhtd" else -3
        lengths = [x.shape[axis] if x.dim() >= -axis else 1 for x in (q, k)]
        asked = requires_grad((q, k, v), tensors, numbers) if torch.is_grad_enabled() else False
        for name in GRADIENTS:
            if asked and name in tensors and tensors[name].requires_grad and name not in SUMMED:
                raise NotImplementedError(f"{name} requires a gradient, which libattn does not compute over several "
                                          f"processes; detach it")
    except Exception as error:
        problem = error
    queries, keys, problems, *key = carrier.sums([*lengths, problem is not None, *key], timeout)
    if problems:
        _core.Ranks(carrier, asdict(Cut(timeout=timeout)), 0, 0).refuse(problem)
    if draws:
        tensors["dropout_key"] = torch.tensor(key)
    ranks = _core.Ranks(carrier, asdict(cut), queries, keys)
    places = [tensors.get(name) for name in TENSORS]
    out, lse = Ring.apply(ranks, numbers | {"layout": layout}, q, k, v, *places)  # type: ignore[no-untyped-call]
    return (out, lse) if return_lse else out


def checked(q: Any, k: Any, v: Any, options: dict[str, Any],
            layout: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The options, taken apart; refuses what is refused without a look at other ranks."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        check(x, name)
        if x.device.type != "cpu" or x.dtype not in FLOATS:
            raise ValueError(f"{name} is {x.dtype} on {x.device}; expected float32, bfloat16 or float16 on the CPU")
    if layout not in ("bhtd", "bthd"):
        raise ValueError(f"layout is {layout!r}; expected 'bhtd' or 'bthd'")
    return apart(q, k, options, layout)


@contextlib.contextmanager
def told(ranks: Any) -> Iterator[None]:
    """An error that this rank alone has met becomes that of all."""
    try:
        yield
    except Exception as error:
        if ranks.has_begun:
            raise
        ranks.refuse(error)


class Ring(torch.autograd.Function):
    """A call and its gradients, each a walk over all ranks' keys."""

    @staticmethod
    def forward(ctx: Any, ranks: Any, numbers: dict[str, Any], *tensors: Any) -> Any:
        layout = numbers["layout"]
        ranks.has_begun = False
        with told(ranks):
            q, k, v = (rows_of(x.detach()) for x in tensors[:3])
            call = _core.Call(q, k, v, layout, options_of(tensors, numbers), ranks)
            batch, heads, tokens, _ = call.q.shape
            out = q.new_empty((*q.shape[:-1], v.shape[-1]))
            lse = q.new_empty((batch, heads, tokens)[missing_axes(q.dim(), layout) :], dtype=torch.float32)
            call.set_outputs(out, lse)
            call.run()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, out, lse)
        ctx.ranks, ctx.numbers = ranks, numbers
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Any, d_lse: Any) -> Any:
        *tensors, out, lse = ctx.saved_tensors
        ranks, numbers = ctx.ranks, ctx.numbers
        names = ("q", "k", "v", *TENSORS)
        wanted = [name for name, needed in zip(names, ctx.needs_input_grad[2:]) if needed and name in GRADIENTS]
        ranks.has_begun = False
        with told(ranks):
            q, k, v = (rows_of(x) for x in tensors[:3])
            d_out = torch.zeros_like(out) if d_out is None else rows_of(d_out)
            options = options_of(tensors, numbers)
            call = _core.Call(q, k, v, numbers["layout"], options, ranks)
            got = gradients_of(call, {"q": q, "k": k, "v": v}, out, lse, d_out, d_lse, [GRADIENTS[name] for name in wanted],
                               options)
        given = dict(zip(names, tensors))
        by_name = {name: getattr(got, GRADIENTS[name]).to(given[name].dtype) for name in wanted}
        return None, None, *(by_name.get(name) for name in names[: len(tensors)])


def options_of(tensors: Any, numbers: dict[str, Any]) -> dict[str, Any]:
    given = [x if x is None else x.detach() for x in tensors[3:]]
    return core_options(dict(zip(TENSORS, given)), numbers)


def place_in(group: Group) -> tuple[int, int]:
    """This process's rank in a group, and how many there are."""
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError("this process is not in group; expected a group that it is in")
    return rank, dist.get_world_size(group)


class Ending:
    """Whether a message that was begun has ended, and how."""

    __slots__ = ("failure", "has_come")

    def __init__(self) -> None:
        self.has_come = False
        self.failure: BaseException | None = None


class Message:
    """What begins one, and the ending of the last one that was begun."""

    __slots__ = ("begin", "ending", "once")

    def __init__(self, begin: Callable[[], Any], once: bool) -> None:
        self.begin, self.once = begin, once
        self.ending: Ending | None = None


class Carrier:
    """Carries the messages of one call over a process group (src/mpi/transport.h has what is asked of it).

    gloo completes messages by itself but says so only to who waits, so a thread waits for each.
    """

    def __init__(self, group: Group) -> None:
        self.rank, self.ranks = place_in(group)
        self.failure: BaseException | None = None
        self._group = group
        self._world = [dist.get_global_rank(group, n) if group is not None else n for n in range(self.ranks)]
        self._messages: dict[int, Message] = {}
        self._numbers = 0
        self._some_ended = threading.Event()

    def sums(self, lengths: list[int], timeout: float) -> list[int]:
        """Of all ranks' numbers, each; ConnectionError after so many seconds, unless that is 0."""
        numbers = torch.tensor(lengths)
        number = self._begun(lambda: dist.all_reduce(numbers, group=self._group, async_op=True))
        end = time.monotonic() + timeout
        try:
            while not self.test(number):
                if timeout > 0 and time.monotonic() > end:
                    raise ConnectionError(f"rank {self.rank}: the lengths of all ranks did not come in {timeout:g} seconds, "
                                          f"cut.timeout")
                self.idle()
        except RuntimeError as failure:
            raise ConnectionError(f"rank {self.rank}: the lengths of all ranks failed: {failure}") from failure
        return [int(n) for n in numbers]

    def prepare(self, sends: bool, memory: memoryview, rank: int, tag: int) -> int:
        data, peer, function = _bytes(memory), self._world[rank], dist.isend if sends else dist.irecv
        return self._add(lambda: function(data, peer, group=self._group, tag=TAGS + tag), once=False)

    def broadcast(self, memory: memoryview, root: int) -> int:
        data, source = _bytes(memory), self._world[root]
        return self._begun(lambda: dist.broadcast(data, source, group=self._group, async_op=True))

    def lowest(self, mine: memoryview, lowest: memoryview) -> int:
        number = torch.frombuffer(lowest, dtype=torch.int32).copy_(torch.frombuffer(mine, dtype=torch.int32))
        return self._begun(lambda: dist.all_reduce(number, dist.ReduceOp.MIN, group=self._group, async_op=True))

    def gather(self, mine: memoryview, everyones: memoryview) -> int:
        parts = list(_bytes(everyones).chunk(self.ranks))
        return self._begun(lambda: dist.all_gather(parts, _bytes(mine), group=self._group, async_op=True))

    def start(self, number: int) -> None:
        message = self._messages[number]
        message.ending = Ending()
        threading.Thread(target=_wait, args=([message.begin()], message.ending, self._some_ended), daemon=True).start()

    def test(self, number: int) -> bool:
        message = self._messages[number]
        ending = message.ending
        if ending is not None and not ending.has_come:
            return False
        if message.once:
            del self._messages[number]
        if ending is not None and ending.failure is not None:
            raise ending.failure
        return True

    def discard(self, number: int) -> None:
        del self._messages[number]

    def idle(self) -> None:
        self._some_ended.wait(0.001)
        self._some_ended.clear()

    def _add(self, begin: Callable[[], Any], once: bool) -> int:
        self._numbers += 1
        self._messages[self._numbers] = Message(begin, once)
        return self._numbers

    def _begun(self, begin: Callable[[], Any]) -> int:
        number = self._add(begin, once=True)
        self.start(number)
        return number


def _wait(works: list[Any], ending: Ending, some_ended: threading.Event) -> None:
    """What a thread does: waits for a work, and tells its ending.

    If the program ends meanwhile, a thread that takes the interpreter's lock is unwound, and the process aborted where a
    destructor in C++ takes it, as those of works and tensors do. So the work goes before its end is told, and nothing
    else that has such a destructor is the thread's: no message, for its tensors, and no carrier, for its group.
    """
    try:
        works.pop().wait()
    except BaseException as failure:
        ending.failure = failure
    ending.has_come = True
    some_ended.set()


TAGS = 0x61740000
"""From here on, so that messages of the program's own are not meant."""


def _bytes(memory: memoryview) -> torch.Tensor:
    return torch.frombuffer(memory, dtype=torch.uint8)
