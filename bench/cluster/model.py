# SPDX-License-Identifier: Apache-2.0
"""A model of the time that ring attention takes: how much each rank computes and sends, and what that costs.

A rank goes through the keys of all ranks, its own first. While it computes with those of one, those of the next arrive,
so a step takes the longer of the two:

    t = start + sum over steps of max(pair * pairs * channels + row * rows * channels, latency + bytes / bandwidth)

pairs are those of a query and a key that sees it, times the query heads; rows are queries that see a key of the step,
times the heads, whose results are joined. start, pair and row are fitted to measured calls; latency and bandwidth to
measured messages, or given for a network. The slowest rank counts.
"""

import math

MESSAGES_OF_A_CALL = 2  # collective ones, by which ranks agree before anything is computed, each in log2(ranks) steps


def ranges_of(placement, tokens, ranks, rank, stripe=512):
    """The tokens of a rank, as [first, end) in rising order: what attn_mpi_ranges() says."""
    def begin(number, parts):
        return tokens // parts * number + min(number, tokens % parts)  # the first ones have a token more

    def part(number, parts):
        return begin(number, parts), begin(number + 1, parts)
    if placement == 0:
        found = [part(rank, ranks)]
    elif placement == 1:
        found = [part(rank, 2 * ranks), part(2 * ranks - 1 - rank, 2 * ranks)]
    else:
        found = [(first, min(first + stripe, tokens))
                 for first in range(rank * stripe, tokens, ranks * stripe)]
    return [r for r in found if r[0] < r[1]]


def sum_above(first, end, key):
    """The sum over queries q of max(0, q - key + 1)."""
    first = max(first, key)
    if first >= end:
        return 0
    count = end - first
    return count * (first - key + 1) + count * (count - 1) // 2


def pairs_of(queries, keys, causal, window):
    """How many pairs of a query and a key that it sees there are between two ranges. window: keys before a query's own
    that it sees; 0: all."""
    if not causal and not window:
        return (queries[1] - queries[0]) * (keys[1] - keys[0])

    def up_to(shift):  # keys of the range up to q - shift
        return (sum_above(queries[0] - shift, queries[1] - shift, keys[0])
                - sum_above(queries[0] - shift, queries[1] - shift, keys[1]))
    if not causal:
        return (queries[1] - queries[0]) * (keys[1] - keys[0]) - up_to(window + 1)
    return up_to(0) - (up_to(window + 1) if window else 0)


class Step:
    """What a rank does with the keys of one rank: sums over heads, and bytes that had to arrive."""

    def __init__(self, pairs, rows, size):
        self.pairs, self.rows, self.size = pairs, rows, size


def steps_of(call, rank):
    """The steps of a rank; ranks whose keys it does not see are left out, as they are not sent."""
    ranks, heads, channels = call["ranks"], call["heads"], call["channels"]
    groups = ranks // call["head_ranks"]
    # A group of head_ranks neighbours has the tokens of all, each rank some of the heads.
    members = [rank // call["head_ranks"] * call["head_ranks"] + i for i in range(call["head_ranks"])]

    def tokens_of(owners):
        return [r for owner in owners for r in ranges_of(call["placement"], call["tokens"], ranks, owner)]
    mine, heads = tokens_of(members), heads / call["head_ranks"]
    width = 2 if call["wire"] else 4
    found = []
    for step in range(groups):
        group = (rank // call["head_ranks"] - step) % groups
        keys = tokens_of(range(group * call["head_ranks"], (group + 1) * call["head_ranks"]))
        pairs = rows = 0
        for q in mine:
            seen = sum(pairs_of(q, k, call["causal"], call["window"]) for k in keys)
            pairs += seen
            rows += q[1] - q[0] if seen else 0
        if pairs or step == 0:
            size = sum(k[1] - k[0] for k in keys) * call["kv_heads"] / call["head_ranks"] * 2 * channels * width
            found.append(Step(pairs * heads * 2 * channels, rows * heads * channels, size if step else 0))
    return found


def time_of(call, model):
    """Seconds of the slowest rank. With many ranks those at both ends and in the middle stand for all."""
    ranks = call["ranks"]
    some = range(ranks) if ranks <= 16 else sorted({0, 1, ranks // 4, ranks // 2, 3 * ranks // 4, ranks - 1})
    return max(time_of_rank(call, model, rank) for rank in some)


def time_of_rank(call, model, rank):
    steps = steps_of(call, rank)
    rounds = math.ceil(math.log2(call["ranks"])) if call["ranks"] > 1 else 0
    total = model["start"] + MESSAGES_OF_A_CALL * rounds * model["latency"]
    if call["head_ranks"] > 1:
        total += exchange_of(call, model)
    for step, after in zip(steps, [*steps[1:], None]):
        computing = model["pair"] * step.pairs + model["row"] * step.rows
        arriving = model["latency"] + after.size / model["bandwidth"] if after else 0
        total += max(computing, arriving)
    return total


def exchange_of(call, model):
    """Tokens for heads and back: q, k and v there, out back; nothing is computed meanwhile."""
    share = call["tokens"] / call["ranks"] * (1 - 1 / call["head_ranks"]) * call["channels"] * 4
    return 2 * model["latency"] + share * (2 * call["heads"] + 2 * call["kv_heads"]) / model["bandwidth"]


def fit_messages(messages):
    """Latency and bandwidth: the shortest message, and the longest one."""
    shortest, longest = min(messages, key=lambda m: m["message"]), max(messages, key=lambda m: m["message"])
    return {"latency": shortest["seconds"],
            "bandwidth": longest["message"] / max(longest["seconds"] - shortest["seconds"], 1e-12)}


def solve(rows, values):
    """Least squares with coefficients that are not negative, of a few unknowns: those that would be are left out."""
    wanted = list(range(len(rows[0])))
    while True:
        normal = [[sum(r[i] * r[j] for r in rows) for j in wanted] + [sum(r[i] * v for r, v in zip(rows, values))]
                  for i in wanted]
        for i in range(len(wanted)):
            pivot = max(range(i, len(wanted)), key=lambda k: abs(normal[k][i]))
            normal[i], normal[pivot] = normal[pivot], normal[i]
            if normal[i][i] == 0:
                raise ValueError("the measured calls do not tell the costs apart")
            for k in range(len(wanted)):
                if k != i:
                    factor = normal[k][i] / normal[i][i]
                    normal[k] = [x - factor * y for x, y in zip(normal[k], normal[i])]
        found = [normal[i][-1] / normal[i][i] for i in range(len(wanted))]
        if min(found) >= 0:
            result = [0.0] * len(rows[0])
            for i, value in zip(wanted, found):
                result[i] = value
            return result
        del wanted[found.index(min(found))]


def fit(calls, messages):
    """start, pair and row of calls whose messages are shorter than what is computed, with the least relative error."""
    model = fit_messages(messages)
    rows, values = [], []
    for call in calls:
        # Of the rank with most to do.
        steps = max((steps_of(call, rank) for rank in range(call["ranks"])),
                    key=lambda s: (sum(x.pairs for x in s), sum(x.rows for x in s)))
        seconds = call["best"]
        rows.append([1 / seconds, sum(s.pairs for s in steps) / seconds, sum(s.rows for s in steps) / seconds])
        values.append(1.0)
    model["start"], model["pair"], model["row"] = solve(rows, values)
    return model
