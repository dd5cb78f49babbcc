# SPDX-License-Identifier: Apache-2.0
"""Wrong command lines for kinds of attention: one sentence in the command's words, nothing touched. And their help."""

import math
import os
import re
import unittest

from support import Array, CommandTest, in_turns, normal

NN = bool(os.environ.get("ATTN_NN"))
KINDS = ("softmax", "additive", "linear", "gated", "delta", "gated-delta", "performer", "linformer")
WITH_NN = ("additive", "linformer")
STATES = ("linear", "gated", "delta", "gated-delta", "performer")
SCORES = ("softmax", "linformer")
SEES = ("softmax", "additive")
# Which kinds an option has a meaning with; an option that is not here has one with the softmax alone.
MEANS = {
    "average-heads": ("softmax", "additive", "linformer"),
    **dict.fromkeys(("query", "key", "value", "output", "kind", "layout", "kv-len", "threads", "out-dtype"), KINDS),
    **dict.fromkeys(("isa", "scale"), ("softmax", *STATES, "linformer")),
    "cu-seqlens": ("softmax", "additive", *STATES),
    "causal": (*SEES, "performer"),
    **dict.fromkeys(("seed", "offset"), ("softmax", "performer", "linformer")),
    **dict.fromkeys(("temperature", "lse", "weights"), ("softmax", "additive", "linformer")),
    **dict.fromkeys(("scores", "score-stage", "key-sums", "weight-rows", "qk", "inputs", "sums", "softcap", "head-scale", "sinks", "dropout"), SCORES),
    **dict.fromkeys(("mask", "kv-start", "query-offset", "window", "first-tokens", "global", "prefix", "segments",
                     "segments-k", "tree", "cu-seqlens-k", "block-pattern", "block", "block-window", "block-global",
                     "block-random", "block-seed", "block-stride", "block-heads", "block-offsets", "block-columns"), SEES),
    **dict.fromkeys(("wq", "wk", "score-v", "score-bias"), ("additive",)),
    "decay": ("gated", "gated-delta", "performer"),
    "beta": ("delta", "gated-delta"),
    **dict.fromkeys(("state-in", "state-out", "resets"), STATES),
    "feature-map": STATES[:-1],
    "normalise": ("linear", "gated"),
    "bidirectional": ("linear",),
    **dict.fromkeys(("features", "projection"), ("performer",)),
    **dict.fromkeys(("project-k", "project-v"), ("linformer",)),
}
NEEDS = {"additive": ("wq", "wk", "score-v"), "gated": ("decay",), "delta": ("beta",), "gated-delta": ("decay", "beta"),
         "performer": ("features",), "linformer": ("project-k",)}
FILES = ("wq", "wk", "score-v", "score-bias", "decay", "beta", "state-in", "resets", "projection", "project-k", "project-v")
GOOD = {"wq": "wq.npy", "wk": "wk.npy", "score-v": "w.npy", "score-bias": "b.npy", "decay": "g.npy", "beta": "g.npy",
        "state-in": "s.npy", "resets": "r.npy", "features": "4", "projection": "p.npy", "project-k": "e.npy", "project-v": "f.npy"}


# Options whose files are opened once the command line is understood.
READ = (*FILES, "relative-bias", "rel-k", "rel-q", "segments", "tree", "mask", "kv-len", "kv-start")


def listed(names):
    *some, last = [name for name in KINDS if name in names]
    return f"{', '.join(some)} or {last}" if some else last


class Usage(CommandTest):
    RUN = ("run", "-q", "q.npy", "-k", "k.npy", "-v", "v.npy", "-o", "o.npy")

    def setUp(self):
        super().setUp()
        self.use(4, 2, 2)
        self.write(wq_npy=normal((5, 6), 4), wk_npy=normal((5, 6), 5), w_npy=normal((5,), 6), b_npy=normal((5,), 9),
                   e_npy=normal((3, 9), 7), f_npy=normal((3, 9), 10), g_npy=Array((1, 1, 9, 1), [-1.0] * 9),
                   s_npy=normal((2, 2, 6, 3), 8), r_npy=Array((9, 1), [False] * 9, "|b1"), q_txt=b"text",
                   p_npy=normal((3, 6), 11), i_npy=Array((2, 2, 9, 1), [0] * 36, "<i4"), n_npy=Array((2,), [9, 3], "<i4"), o_npy=b"old")

    def use(self, q_heads, k_heads, heads, batch=2, tokens=9, channels=6):
        self.write(q_npy=normal((batch, q_heads, tokens, channels), 1), k_npy=normal((batch, k_heads, tokens, channels), 2),
                   v_npy=normal((batch, heads, tokens, 3), 3))

    def line(self, kind, *options, without=()):
        """A good command line for the kind, if its heads fit: everything that it needs, and more options."""
        given = {option.split("=")[0] for option in options}
        needs = [f"--{name}={GOOD[name]}" for name in NEEDS.get(kind, ())
                 if name not in without and f"--{name}" not in given and (name != "features" or "projection" not in
                                                                          without and "--projection" not in given)]
        return (*self.RUN, "--kind", kind, *needs, *options)

    def kinds(self):
        return [kind for kind in KINDS if NN or kind not in WITH_NN]

    def refused(self, code, says, kind, *options, **changes):
        if kind in self.kinds():
            self.fails(code, says, *self.line(kind, *options, **changes))

    def test_the_good_lines_are_good(self):
        for kind in self.kinds():
            if kind == "additive":
                self.use(1, 1, 1)
            self.attn(*self.line(kind))
            self.use(4, 2, 2)

    def test_names(self):
        self.fails(2, "--kind is 'nystrom'; expected softmax, additive, linear, gated, delta, gated-delta, performer or "
                   "linformer", *self.RUN, "--kind", "nystrom")
        self.fails(2, "unknown option '--kind'", "heatmap", "-q", "q.npy", "-k", "k.npy", "-o", "o.png", "--kind", "linear")

    def options(self):
        """Names and whether they take a value, from the help."""
        text = self.attn("run", "--help").stdout
        found = re.findall(r"(?m)^  (?:-\w, |    )--([a-z-]+)( [A-Z0-9][A-Za-z0-9,.]*)?", text)
        self.assertGreater(len(found), 60)
        return [(name, bool(value)) for name, value in found if name not in ("help", "version", "quiet")]

    def test_every_option_is_taken_or_refused(self):
        """Values are wrong on purpose: an option with a meaning is refused for another reason, or does not matter."""
        names = self.options()
        self.assertLessEqual(set(MEANS), {name for name, _ in names})
        for turn, (name, takes) in enumerate(names):
            if name in ("query", "key", "value", "output", "kind"):
                continue
            kinds = MEANS.get(name, ("softmax",))
            for kind in in_turns(self.kinds(), turn):
                line = (*self.line(kind, without=(name,)), f"--{name}=x" if takes else f"--{name}")
                if kind not in kinds:
                    text = self.fails(2, f"option --{name} has no meaning with --kind {kind}", *line).stderr
                    self.assertTrue(text.endswith(f"; expected --kind {listed(kinds)}\n"), text)
                elif takes:
                    beside = ("--causal=top-left",) if (kind, name) == ("performer", "decay") else ()
                    text = self.attn(*line, *beside, code=1 if name in READ else 2).stderr
                    self.assertNotIn("meaning", text)

    def test_the_softmax_has_none_of_the_others_options(self):
        self.fails(2, "option --decay has no meaning with --kind softmax; expected --kind gated, gated-delta or performer",
                   *self.RUN, "--decay", "g.npy")
        self.fails(2, "option --features has no meaning with --kind softmax; expected --kind performer", *self.RUN,
                   "--features", "4")

    def test_reasons(self):
        self.refused(2, "option --causal has no meaning with --kind linear, which is causal but for --bidirectional; ",
                     "linear", "--causal=none")
        for kind in ("gated", "delta", "gated-delta"):
            self.refused(2, f"option --causal has no meaning with --kind {kind}, which is always causal; expected --kind "
                         "softmax, additive or performer", kind, "--causal=top-left")
        self.refused(2, "option --bidirectional has no meaning with --kind performer, which is so without --causal; ",
                     "performer", "--bidirectional")
        self.refused(2, "option --normalise has no meaning with --kind performer, which always divides; ", "performer",
                     "--normalise")

    def test_projection(self):
        self.write(wide_npy=normal((3, 7), 11), heads_npy=normal((3, 5, 6), 11))
        for options in ((), ("--seed=1",), ("--offset=1",), ("--features=3",)):
            line = self.line("performer", "--projection=p.npy", *options)
            if options == ("--features=3",):
                self.fails(2, "--features draws what --projection gives; expected one of the two", *line)
            elif options:
                self.fails(2, f"option {options[0][:-2]} has no effect with --projection", *line)
            else:
                self.attn(*line)
                self.write(o_npy=b"old")
        self.fails(1, "attn: the number of channels of --projection is 7; expected 6, the channels of q",
                   *self.line("performer", "--projection=wide.npy"))
        self.fails(1, "attn: the number of heads of --projection is 3; expected 1 or 2",
                   *self.line("performer", "--projection=heads.npy"))

    def test_what_is_missing(self):
        for kind, needs in NEEDS.items():
            for name in needs:
                value = "N" if name == "features" else "FILE"
                or_else = ", or --projection" if name == "features" else ""
                self.refused(2, f"option --{name} {value} is missing; --kind {kind} needs it{or_else}\n", kind,
                             without=(name,))

    def test_pairs(self):
        for kind in STATES:
            self.refused(2, f"--kv-len and --cu-seqlens both say where sequences end with --kind {kind}", kind,
                         "--kv-len=n.npy", "--cu-seqlens=0,9")
        for kind in ("linear", "gated"):
            self.refused(2, "option --scale has no effect with --normalise", kind, "--normalise", "--scale=2")
        for causal in ((), ("--causal=none",)):
            self.refused(2, "option --decay has no effect with --kind performer without --causal; expected --causal "
                         "top-left", "performer", "--decay=g.npy", *causal)
        self.refused(2, "--causal is 'offset'; expected none, top-left or bottom-right with --kind performer",
                     "performer", "--causal=offset")
        self.refused(2, "--causal bottom-right would move queries by --kv-len, which --kind performer cannot; expected "
                     "--causal top-left", "performer", "--causal=bottom-right", "--kv-len=n.npy")
        for option in ("--seed", "--offset"):
            self.refused(2, f"option {option} has no effect without --dropout", "linformer", f"{option}=1")
        self.refused(2, "option --score-stage has no effect without --scores", "linformer", "--score-stage=raw")

    def test_bad_values(self):
        for value in ("", "0", "-1", "4097", "1.5", "x"):
            self.refused(2, f"--features is '{value}'; expected a whole number from 1 to 4096", "performer",
                         f"--features={value}")
        for kind in STATES[:-1]:
            self.refused(2, "--feature-map is 'relu'; expected none or elu", kind, "--feature-map=relu")
        self.refused(2, "--seed is '-1'", "performer", "--seed=-1")
        self.refused(2, "--scale is '0'", "linear", "--scale=0")
        self.refused(2, "--isa is 'sse'", "linear", "--isa=sse")
        self.refused(2, "takes no value", "linear", "--normalise=yes")

    def kind_of(self, name):
        return next(kind for kind in KINDS if kind != "softmax" and kind in MEANS[name])

    def test_files_of_a_wrong_type(self):
        floats = "float32, float16 or bfloat16"
        for name in FILES:
            kind = self.kind_of(name)
            wanted = {"resets": "bool", "state-in": "float32", "projection": "float32"}.get(name, floats)
            self.refused(1, f"--{name} i.npy has dtype int32; expected {wanted}\n", kind, f"--{name}=i.npy")
            self.refused(1, "none.npy", kind, f"--{name}=none.npy")
            self.refused(1, "q.txt", kind, f"--{name}=q.txt")
        self.write(h_npy=normal((2, 2, 6, 3), 8).astype("<f2"))
        self.refused(1, "--state-in h.npy has dtype float16; expected float32", "linear", "--state-in=h.npy")
        self.refused(1, "--resets g.npy has dtype float32; expected bool", "linear", "--resets=g.npy")

    def test_files_of_wrong_dimensions(self):
        for name, least, most, text in (
                ("wq", 2, 2, "2 dimensions: inner channel, channel of q"),
                ("wk", 2, 2, "2 dimensions: inner channel, channel of k"), ("score-v", 1, 1, "1 dimension: inner channel"),
                ("score-bias", 1, 1, "1 dimension: inner channel"),
                ("decay", 2, 4, "2 to 4 dimensions, in the layout of v"),
                ("beta", 2, 4, "2 to 4 dimensions, in the layout of v"),
                ("resets", 2, 4, "2 to 4 dimensions, in the layout of v"),
                ("state-in", 2, 4, "2 to 4 dimensions: sequence, head, row, column"),
                ("project-k", 2, 3, "2 or 3 dimensions: row, token, or head, row, token"),
                ("project-v", 2, 3, "2 or 3 dimensions: row, token, or head, row, token")):
            for rank in (least - 1, most + 1):
                code = "|b1" if name == "resets" else "<f4"
                self.write(x_npy=Array((1,) * rank, [0], code))
                self.refused(1, f"--{name} x.npy has shape (", self.kind_of(name), f"--{name}=x.npy")
                self.refused(1, f"; expected {text}\n", self.kind_of(name), f"--{name}=x.npy")

    def test_shapes_of_gates_and_states(self):
        for name, kind, code in (("decay", "gated", "<f4"), ("beta", "delta", "<f4"), ("resets", "linear", "|b1")):
            for shape, says in (((3, 2, 9, 1), "batch size of --{} is 3; expected 1 or 2"),
                                ((2, 4, 9, 1), "number of heads of --{} is 4; expected 1 or 2"),
                                ((2, 2, 8, 1), "number of tokens of --{} is 8; expected 1 or 9"),
                                ((2, 2, 9, 2), "number of channels of --{} is 2; expected 1")):
                self.write(x_npy=Array(shape, [0] * math.prod(shape), code))
                self.refused(1, "the " + says.format(name), kind, f"--{name}=x.npy")
        self.write(x_npy=Array((1, 1), [False], "|b1"))
        self.refused(1, "the number of tokens of --resets is 1; expected 9", "linear", "--resets=x.npy")
        for shape, says in (((3, 2, 6, 3), "number of sequences of --state-in is 3; expected 2"),
                            ((2, 4, 6, 3), "number of heads of --state-in is 4; expected 2"),
                            ((2, 2, 5, 3), "number of rows of --state-in is 5; expected 6"),
                            ((2, 2, 6, 4), "number of columns of --state-in is 4; expected 3")):
            self.write(x_npy=Array(shape, [0] * math.prod(shape)))
            self.refused(1, "the " + says, "linear", "--state-in=x.npy")
        self.refused(1, "the number of columns of --state-in is 3; expected 4", "linear", "--normalise", "--state-in=s.npy")
        self.refused(1, "the number of rows of --state-in is 6; expected 4, those of --features", "performer",
                     "--state-in=s.npy")

    def test_values_of_gates(self):
        for value in (0.5, math.nan):
            self.write(x_npy=Array((1, 1, 9, 1), [-1.0] * 8 + [value]))
            for kind in ("gated", "gated-delta"):
                self.refused(2, f"--decay[0][0][8][0] is {value}; expected a number up to 0", kind, "--decay=x.npy",
                             "--state-out=t.npy")
        self.write(x_npy=Array((9, 6), [-1.0] * 54))
        self.refused(2, "--decay has a number for each channel; expected one for each head with --kind performer",
                     "performer", "--decay=x.npy", "--causal=top-left")
        self.refused(2, "--scale is -1; expected more than 0 with --kind performer", "performer", "--scale=-1")

    def test_operands_that_do_not_fit(self):
        self.use(3, 2, 2)
        for kind in STATES:
            self.refused(1, "the number of heads of -q is 3; expected a multiple or a divisor of 2, the heads of v", kind)
        self.use(4, 4, 2)
        for kind in STATES:
            self.refused(1, "the number of heads of -k is 4; expected a divisor of 2, the heads of v", kind)
        self.use(4, 2, 2)
        self.write(k_npy=normal((2, 2, 8, 6), 2))
        for kind in STATES:
            self.refused(1, "the number of tokens of -k is 8; expected 9, the tokens of q", kind)
        self.write(q_npy=normal((1, 1, 1, 4097), 1), k_npy=normal((1, 1, 1, 4097), 2), v_npy=normal((1, 1, 1, 3), 3))
        for kind in ("linear", "performer"):
            self.refused(1, "the head size of -q is 4097; expected at most 4096 channels", kind)

    def test_lengths(self):
        for kind in (*STATES, "linformer"):
            self.write(n_npy=Array((2,), [9, 10], "<i4"))
            self.refused(2, "--kv-len[1] is 10; expected 0 to 9", kind, "--kv-len=n.npy")
        for kind in STATES:
            self.refused(1, "q has 2 batch elements; expected 1, as --cu-seqlens cuts its tokens", kind, "--cu-seqlens=0,9")

    def test_linformer(self):
        self.write(x_npy=normal((3, 8), 4))
        for name in ("project-k", "project-v"):
            self.refused(1, f"the number of tokens of --{name} is 8; expected 9 or more, the tokens of k", "linformer",
                         f"--{name}=x.npy")
        self.write(x_npy=normal((4, 3, 9), 4), y_npy=normal((2, 9), 4))
        for name in ("project-k", "project-v"):
            self.refused(1, f"the number of heads of --{name} is 4; expected 1 or 2", "linformer", f"--{name}=x.npy")
        self.refused(1, "the number of rows of --project-v is 2; expected 3, those of --project-k", "linformer",
                     "--project-v=y.npy")

    def test_additive(self):
        for q_heads, k_heads, operand in ((2, 1, "q"), (1, 2, "k")):
            self.use(q_heads, k_heads, 1)
            self.refused(1, f"the number of heads of -{operand} is 2; expected 1 head", "additive")
        self.use(1, 1, 2)
        self.refused(1, "the number of heads of -v is 2; expected 1 head", "additive")
        self.use(1, 1, 1)
        self.write(x_npy=normal((5, 7), 4), y_npy=normal((4, 6), 4), z_npy=normal((4,), 4), u_npy=Array((0, 6), []))
        for name in ("wq", "wk"):
            self.refused(1, f"the number of columns of --{name} is 7; expected 6 columns", "additive", f"--{name}=x.npy")
        self.refused(1, "the number of rows of --wk is 4; expected 5 rows", "additive", "--wk=y.npy")
        for name in ("score-v", "score-bias"):
            self.refused(1, f"the length of --{name} is 4; expected 5 columns", "additive", f"--{name}=z.npy")
        self.refused(2, "the number of rows of --wq is 0; expected 1 or more", "additive", "--wq=u.npy")
        self.refused(2, "--temperature is 1e-39; expected", "additive", "--temperature=1e-39")
        self.write(z_npy=Array((5,), [3e38] * 5))
        self.refused(2, "--score-v[0] is 3e+38, with a temperature of 0.01; expected", "additive", "--score-v=z.npy",
                     "--temperature=0.01")
        self.write(k_npy=normal((3, 1, 9, 6), 2))
        self.refused(1, "the batch size of -k is 3; expected 2 sequences", "additive")
        self.write(k_npy=normal((2, 1, 8, 6), 2))
        self.refused(1, "the number of tokens of -v is 9; expected 8 tokens", "additive")

    def test_outputs(self):
        """Names of outputs; and nothing is written when a later one cannot be."""
        for name in FILES:
            if self.kind_of(name) in self.kinds():
                line = list(self.line(self.kind_of(name), f"--{name}={GOOD[name]}"))
                line[line.index("o.npy")] = GOOD[name]
                self.fails(2, f"-o would replace {GOOD[name]}, which --{name} reads", *line)
        self.refused(2, "--state-out would replace s.npy, which --state-in reads", "linear", "--state-in=s.npy",
                     "--state-out=s.npy")
        self.refused(2, "-o and --state-out both write", "linear", "--state-out=o.npy")
        self.refused(1, "none/s.npy", "linear", "--state-out=none/s.npy")

    def test_without_libattn_nn(self):
        for kind in WITH_NN:
            if not NN:
                self.fails(1, f"--kind {kind} is part of libattn_nn, without which this program was built; expected "
                           "softmax, linear, gated, delta, gated-delta or performer", *self.line(kind))

    def test_help(self):
        names = [name for name, _ in self.options()]
        for name in ("kind", "state-out", "feature-map", "normalise", "bidirectional", "features", *FILES):
            self.assertIn(name, names)


if __name__ == "__main__":
    unittest.main()
