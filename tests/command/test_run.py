# SPDX-License-Identifier: Apache-2.0
"""attn run on good input: every option, rank and format against a computation in double."""

import math
import random
import unittest

from support import DATA, Array, CommandTest, attention, normal, permuted, read_npy, read_safetensors

INF = math.inf


def shorter(array, rank):
    """Drops leading dimensions of length 1."""
    cut = 4 - rank
    assert all(n == 1 for n in array.shape[:cut])
    return Array(array.shape[cut:], array.values, array.code)


class Run(CommandTest):
    def setUp(self):
        super().setUp()
        self.q = normal((2, 4, 5, 6), 1)
        self.k = normal((2, 2, 7, 6), 2)
        self.v = normal((2, 2, 7, 3), 3)

    def inputs(self):
        self.write(q_npy=self.q, k_npy=self.k, v_npy=self.v)
        return ["run", "-q", "q.npy", "-k", "k.npy", "-v", "v.npy", "-o", "o.npy"]

    def check(self, options=(), tolerance=5e-6, **meaning):
        """Runs with all three outputs and compares each."""
        arguments = self.inputs() + ["--lse", "l.npy", "--weights", "w.npy", *options]
        result = self.attn(*arguments)
        self.assertEqual(result.stdout + result.stderr, "")
        wanted = attention(self.q, self.k, self.v, **meaning)
        for name, want in zip("olw", wanted):
            self.assertClose(read_npy(self.folder / f"{name}.npy"), want, f"{name} with {options}", tolerance)
        return wanted

    def test_grouped_heads_and_other_value_size(self):
        self.check()

    def test_only_the_output(self):
        self.attn(*self.inputs())
        self.assertClose(read_npy(self.folder / "o.npy"), attention(self.q, self.k, self.v)[0])
        self.assertEqual(sorted(self.content()), ["k.npy", "o.npy", "q.npy", "v.npy"])

    def test_scores(self):
        d, options = self.q.shape[3], ["--kv-len", "n.npy", "--causal", "bottom-right", "--softcap", "0.5"]
        self.write(n_npy=Array((2,), [6, 7], "<i8"))
        for stage in (None, "raw", "scaled", "capped", "masked"):
            chosen = ["--score-stage", stage] if stage else []
            self.attn(*self.inputs(), *options, "--scores", "s.npy", *chosen)
            want = []
            for b in range(2):
                end = (6, 7)[b]
                for h in range(4):
                    for i in range(5):
                        for j in range(7):
                            score = sum(self.q.at(b, h, i, c) * self.k.at(b, h // 2, j, c) for c in range(d))
                            if stage in ("scaled", "capped", "masked"):
                                score /= math.sqrt(d)
                            if stage in ("capped", "masked"):
                                score = 0.5 * math.tanh(score / 0.5)
                            if j >= end or (stage == "masked" and j > i + end - 5):
                                score = -INF
                            want.append(score)
            self.assertClose(read_npy(self.folder / "s.npy"), Array((2, 4, 5, 7), want), f"scores {stage}")

    def test_chosen_rows_sums_and_the_mean_over_heads(self):
        rows = [4, 0, 4]
        _, _, weights = self.check(["--causal", "top-left"], causal="top-left")
        options = [*self.inputs(), "--causal", "top-left"]
        self.attn(*options, "--weights", "r.npy", "--scores", "s.npy", "--weight-rows", "4,0,4", "--key-sums", "u.npy")
        want = [weights.at(b, h, i, j) for b in range(2) for h in range(4) for i in rows for j in range(7)]
        self.assertClose(read_npy(self.folder / "r.npy"), Array((2, 4, 3, 7), want))
        self.assertEqual(read_npy(self.folder / "s.npy").shape, (2, 4, 3, 7))
        want = [sum(weights.at(b, h, i, j) for i in range(5)) for b in range(2) for h in range(4) for j in range(7)]
        self.assertClose(read_npy(self.folder / "u.npy"), Array((2, 4, 7), want))
        self.inputs()
        for chosen, given in ((range(5), []), (rows, ["--weight-rows", "4,0,4"])):
            self.attn(*options, "--weights", "m.npy", "--average-heads", *given)
            want = [sum(weights.at(b, h, i, j) for h in range(4)) / 4 for b in range(2) for i in chosen for j in range(7)]
            self.assertClose(read_npy(self.folder / "m.npy"), Array((2, len(chosen), 7), want))
        for rank, shape in ((3, (5, 7)), (2, (5, 7))):
            self.write(x_npy=shorter(normal((1, 1, 5, 6), 1), rank), y_npy=shorter(normal((1, 1, 7, 6), 2), rank))
            self.attn("run", "-q", "x.npy", "-k", "y.npy", "-v", "y.npy", "-o", "o.npy", "--weights", "m.npy",
                      "--average-heads", "--key-sums", "u.npy")
            self.assertEqual(read_npy(self.folder / "m.npy").shape, shape)
            self.assertEqual(read_npy(self.folder / "u.npy").shape, (1, 7) if rank == 3 else (7,))
        self.fails(2, "--weight-rows has 5; expected queries, 0 to 4", *self.inputs(), "--weights", "m.npy",
                   "--weight-rows", "1,5")
        self.fails(2, "--weight-rows is '-1'", *self.inputs(), "--weights", "m.npy", "--weight-rows", "-1")
        self.fails(2, "option --weight-rows has no effect without --weights or --scores", *self.inputs(), "--weight-rows",
                   "1")
        self.fails(2, "option --average-heads has no effect without --weights", *self.inputs(), "--average-heads")

    def test_causal(self):
        for tq, tk in ((5, 7), (7, 5), (6, 6), (1, 4)):
            self.q, self.k, self.v = normal((2, 4, tq, 6), 1), normal((2, 2, tk, 6), 2), normal((2, 2, tk, 3), 3)
            for causal in ("none", "top-left", "bottom-right"):
                self.check(["--causal", causal], causal=causal)

    def test_masks_broadcast(self):
        source = random.Random(5)
        for shape in ((7,), (1,), (5, 1), (5, 7), (1, 5, 7), (4, 1, 7), (4, 5, 7), (1, 1, 5, 7), (2, 1, 1, 7),
                      (2, 4, 5, 7), (1, 4, 1, 1)):
            count = math.prod(shape)
            boolean = Array(shape, [source.random() < 0.6 for _ in range(count)], "|b1")
            additive = Array(shape, [source.choice((0.0, 0.5, -2.25, -INF)) for _ in range(count)])
            for mask in (boolean, additive):
                self.write(m_npy=mask)
                self.check(["--mask", "m.npy"], mask=mask)

    def test_mask_together_with_causal_and_lengths(self):
        mask = Array((4, 1, 7), [random.Random(6).random() < 0.7 for _ in range(28)], "|b1")
        self.write(m_npy=mask, n_npy=Array((2,), (6, 5), "<i8"))
        self.check(["--mask", "m.npy", "--kv-len", "n.npy", "--causal", "bottom-right"], mask=mask, kv_len=(6, 5),
                   causal="bottom-right")

    def test_padding_of_either_type_hides_nan(self):
        for code in ("<i4", "<i8"):
            for kv_len, kv_start in (((3, 7), (0, 2)), ((0, 7), (0, 7)), ((5, 5), (5, 4))):
                self.k, self.v = normal((2, 2, 7, 6), 2), normal((2, 2, 7, 3), 3)
                for b in range(2):
                    for h in range(2):
                        for j in range(7):
                            if not kv_start[b] <= j < kv_len[b]:
                                self.k.values[((b * 2 + h) * 7 + j) * 6] = math.nan
                                self.v.values[((b * 2 + h) * 7 + j) * 3] = math.inf
                self.write(n_npy=Array((2,), kv_len, code), s_npy=Array((2,), kv_start, code))
                self.check(["--kv-len", "n.npy", "--kv-start", "s.npy"], kv_len=kv_len, kv_start=kv_start)

    def test_scale_and_temperature(self):
        self.check(["--scale", "0.3"], scale=0.3)
        self.check(["--scale", "-0.7"], scale=-0.7)
        self.check(["--scale=1e-3"], scale=1e-3)
        self.check(["--temperature", "2.5"], temperature=2.5)
        self.check(["--temperature", "0.5", "--scale", "0.8"], temperature=0.5, scale=0.8)

    def test_rounded_keys_and_values(self):
        """As the definitions of attn_quantise() have it; the head of k and v is cut into groups of 32 channels for int4."""
        self.q, self.k, self.v = normal((1, 4, 3, 40), 1), normal((1, 2, 7, 40), 2), normal((1, 2, 7, 33), 3)
        given = self.k, self.v

        def by_rows(array, size, step):
            values, width = [], array.shape[3]
            for row in range(0, len(array.values), width):
                for c in range(0, width, size):
                    part = array.values[row + c:row + min(c + size, width)]
                    values += [s * round(x / s) for s in [step(part)] for x in part]
            return Array(array.shape, values)

        def step4(part):
            low, high = max(0, *(-x for x in part)), max(0, *part)
            return max(low / 8, high / 7) if low >= high else -max(high / 8, low / 7)

        def round8(x, scale):
            """To a float of 3 bits behind the point."""
            if x == 0:
                return 0.0
            exponent = max(math.frexp(abs(x) / scale)[1] - 4, -9)
            return math.ldexp(round(math.ldexp(x / scale, -exponent)), exponent) * scale

        def fp8(array):
            width = array.shape[3]
            return Array(array.shape, [round8(x, max(map(abs, array.values[n // width * width:(n // width + 1) * width])) / 448)
                                       for n, x in enumerate(array.values)])

        for name, rule in (("as-given", lambda x: x), ("int8", lambda x: by_rows(x, 10**6, lambda p: max(map(abs, p)) / 127)),
                           ("fp8", fp8), ("int4", lambda x: by_rows(x, 32, step4))):
            k, v = map(rule, given)
            self.attn(*self.inputs(), "--kv-type", name)
            self.assertClose(read_npy(self.folder / "o.npy"), attention(self.q, k, v)[0], name, 2e-5)
        self.fails(2, "--kv-type is 'int2'; expected as-given, int8, fp8 or int4", *self.inputs(), "--kv-type", "int2")

    def test_free_sums(self):
        self.q = normal((2, 4, 1, 6), 1)
        self.check(["--sums", "free"])

    def test_how_it_is_computed(self):
        self.check(["--isa", "scalar"])
        self.check(["--isa", "auto", "--threads", "1"])
        self.check(["--threads", "3"])

    def test_threads_do_not_change_a_bit(self):
        self.q, self.k, self.v = normal((1, 2, 130, 16), 1), normal((1, 1, 150, 16), 2), normal((1, 1, 150, 16), 3)
        outputs = set()
        for threads in (1, 2, 5):
            self.attn(*self.inputs(), "--threads", threads, "--causal", "bottom-right")
            outputs.add((self.folder / "o.npy").read_bytes())
        self.assertEqual(len(outputs), 1)

    def test_ranks_and_layouts(self):
        for layout in ("bhtd", "bthd"):
            for rank, outer, kv_outer in ((4, (2, 4), (2, 2)), (3, (1, 4), (1, 2)), (2, (1, 1), (1, 1))):
                q, k, v = normal((*outer, 5, 6), 1), normal((*kv_outer, 7, 6), 2), normal((*kv_outer, 7, 3), 3)
                out, lse, weights = attention(q, k, v, causal="bottom-right")
                turn = permuted if layout == "bthd" else lambda array: array
                self.write(q_npy=shorter(turn(q), rank) if rank > 2 else shorter(q, 2),
                           k_npy=shorter(turn(k), rank) if rank > 2 else shorter(k, 2),
                           v_npy=shorter(turn(v), rank) if rank > 2 else shorter(v, 2))
                self.attn("run", "-q", "q.npy", "-k", "k.npy", "-v", "v.npy", "-o", "o.npy", "--lse", "l.npy",
                          "--weights", "w.npy", "--layout", layout, "--causal", "bottom-right")
                what = f"{layout}, rank {rank}"
                want = shorter(turn(out), rank) if rank > 2 else shorter(out, 2)
                self.assertClose(read_npy(self.folder / "o.npy"), want, what)
                self.assertClose(read_npy(self.folder / "l.npy"), Array(lse.shape[4 - rank:], lse.values), what)
                self.assertClose(read_npy(self.folder / "w.npy"), shorter(weights, rank), what)

    def test_empty_dimensions(self):
        self.q = normal((2, 4, 0, 6), 1)
        self.check()
        self.q, self.k, self.v = normal((2, 4, 5, 6), 1), normal((2, 2, 0, 6), 2), normal((2, 2, 0, 3), 3)
        self.check()

    def test_safetensors_in_and_out(self):
        mask = Array((5, 7), [(i * 3) % 4 != 0 for i in range(35)], "|b1")
        self.write(in_safetensors={"other": Array((3,), (1, 2, 3), "<f8"), "q": self.q, "m": mask, "k": self.k,
                                   "n": Array((2,), (6, 7), "<i8"), "v": self.v})
        result = self.attn("run", "-q", "in.safetensors:q", "-k", "in.safetensors:k", "-v", "in.safetensors:v",
                           "--mask", "in.safetensors:m", "--kv-len", "in.safetensors:n", "-o", "out.safetensors:a:b",
                           "--lse", "lse.npy", "--weights", "out.safetensors:w")
        self.assertEqual(result.stderr, "")
        out, lse, weights = attention(self.q, self.k, self.v, mask=mask, kv_len=(6, 7))
        written = read_safetensors(self.folder / "out.safetensors")
        self.assertEqual(sorted(written), ["a:b", "w"])
        self.assertClose(written["a:b"], out)
        self.assertClose(written["w"], weights)
        self.assertClose(read_npy(self.folder / "lse.npy"), lse)
        self.assertEqual(sorted(self.content()), ["in.safetensors", "lse.npy", "out.safetensors"])

    def test_existing_outputs_are_replaced(self):
        self.write(o_npy=b"old", out_safetensors=b"older")
        self.attn(*self.inputs(), "--lse", "out.safetensors:l")
        out, lse, _ = attention(self.q, self.k, self.v)
        self.assertClose(read_npy(self.folder / "o.npy"), out)
        self.assertClose(read_safetensors(self.folder / "out.safetensors")["l"], lse)

    def test_real_sample(self):
        sample = DATA / "minilm.safetensors"
        wanted = read_safetensors(sample)
        self.attn("run", "-q", f"{sample}:layer0.q", "-k", f"{sample}:layer0.k", "-v", f"{sample}:layer0.v",
                  "--kv-len", f"{sample}:kv_len", "-o", "out.safetensors:out", "--lse", "out.safetensors:lse",
                  "--weights", "out.safetensors:weights")
        got = read_safetensors(self.folder / "out.safetensors")
        self.assertClose(got["out"], wanted["layer0.out"], "out")
        self.assertClose(got["weights"], wanted["layer0.weights"], "weights")
        lse = wanted["layer0.lse"]
        self.assertClose(got["lse"], Array(lse.shape[:3], lse.values), "lse")


if __name__ == "__main__":
    unittest.main()
