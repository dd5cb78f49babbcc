# SPDX-License-Identifier: Apache-2.0
"""Wrong options for the forms of attention: one sentence in the command's words, nothing touched. And their help."""

import math
import platform
import unittest

from support import Array, CommandTest, normal


class Usage(CommandTest):
    RUN = ["run", "-q", "q.npy", "-k", "k.npy", "-v", "k.npy", "-o", "o.npy"]
    MAP = ["heatmap", "-q", "q.npy", "-k", "k.npy", "-o", "o.png"]

    def setUp(self):
        super().setUp()
        self.write(q_npy=normal((2, 4, 9, 8), 1), k_npy=normal((2, 2, 11, 8), 2), o_npy=b"old", o_png=b"old",
                   b_npy=normal((4, 8), 3), c_npy=normal((3, 7), 3), d_npy=normal((6, 8), 3),
                   s_npy=Array((2, 9), [0] * 18, "<i4"), l_npy=Array((2, 11), [2**31] * 22, "<i8"))

    def both(self, code, says, *options):
        self.fails(code, says, *self.RUN, *options)
        self.fails(code, says, *self.MAP, *options)

    def test_an_option_without_its_companion(self):
        for beside, options in (
                ("--window", ("--first-tokens 1", "--global 1")),
                ("--relative-bias", ("--buckets t5", "--max-distance 4")),
                ("--rel-q", ("--rel-delta key-query", "--rel-k d.npy --rel-delta query-key")),
                ("--rope", ("--rope-pairs 2", "--rope-base 100", "--rope-scaling ntk")),
                ("--rope-scaling", ("--rope half --rope-factor 2",)),
                ("--rope-scaling yarn, llama3 or longrope",
                 ("--rope half --rope-original-length 9",
                  "--rope half --rope-scaling linear --rope-factor 2 --rope-original-length 9")),
                ("--segments", ("--segments-k s.npy",)), ("--cu-seqlens", ("--cu-seqlens-k 0,1",)),
                ("--block-pattern or --block-offsets", ("--block 16",)),
                ("--block-offsets", ("--block-columns b.npy",)), ("--block-columns", ("--block-offsets f.npy",)),
                ("--rope-scaling yarn", ("--rope half --rope-scaling ntk --rope-factor 2 --rope-beta-fast 1",
                                         "--rope half --rope-beta-slow 1")),
                ("--rope-scaling longrope", ("--rope half --rope-length 1",)),
                ("--rope-scaling yarn or longrope", ("--rope half --rope-attention-factor 1",)),
                ("--block-pattern bigbird", ("--block-heads 2",)),
                ("--block-pattern longformer or bigbird",
                 ("--block-window 1", "--block-pattern strided --block-global 1")),
                ("--block-pattern bigbird", ("--block-random 1", "--block-pattern longformer --block-seed 1")),
                ("--block-pattern strided", ("--block-stride 1", "--block-pattern bigbird --block-stride 1")),
                ("--causal offset, --window, --alibi, --alibi-slopes, --relative-bias, --rel-k, --rel-q or --rope",
                 ("--query-offset 1",))):
            for option in options:
                words = option.split()
                self.both(2, f"option {words[-2]} has no effect without {beside}\n", *words)
        self.both(2, "option --prefix has no effect without causality", "--prefix", "3")
        for option in ("--seed", "--offset"):
            self.fails(2, f"option {option} has no effect without --dropout", *self.RUN, option, "1")
        self.fails(2, "option --score-stage has no effect without --scores", *self.RUN, "--score-stage", "capped")

    def test_contradictions_and_what_is_missing(self):
        self.both(2, "--alibi and --alibi-slopes", "--alibi", "--alibi-slopes", "1,1,1,1")
        self.both(2, "--query-offset contradicts --causal top-left; expected --causal offset", "--query-offset", "1",
                  "--causal", "top-left")
        self.both(2, "option --query-offset N,N,... is missing; --causal offset needs it", "--causal", "offset")
        self.both(2, "option --rope-factor X is missing; --rope-scaling needs it", "--rope", "half", "--rope-scaling",
                  "linear")
        for name in ("yarn", "llama3"):
            self.both(2, f"option --rope-original-length N is missing; --rope-scaling {name} needs it", "--rope",
                      "half", "--rope-scaling", name, "--rope-factor", "2")
        self.fails(2, "unknown option '--dropout'", *self.MAP, "--dropout", "0.5")

    def test_bad_values(self):
        for value in ("", "1", "1,", ",1", "1,2,3", "-1,0", "1,x", "1, 2", "1,infinity", "inf,nan", "1.5,2", "1,-inf",
                      "1,99999999999999999999"):
            self.both(2, f"--window is '{value}'; expected LEFT,RIGHT, ", "--window", value)
        for value in ("", "1,1", "3,2", "-1", "1,,2", "inf", "1,2x"):
            self.both(2, f"--global is '{value}'; expected N,N,..., whole numbers of at least 0, each above the one "
                      "before it", "--window", "1,1", "--global", value)
        for value in ("", "0", "1,2", "0,3,2", "0,-1", "0,x"):
            self.both(2, f"--cu-seqlens is '{value}'; expected 0", "--cu-seqlens", value)
        self.both(2, "--cu-seqlens-k is '0,1,2'; expected as many numbers as --cu-seqlens has, '0,9'", "--cu-seqlens",
                  "0,9", "--cu-seqlens-k", "0,1,2")
        for value in ("", "x", "1,2,3,", "1,2,3,nan", "1,2,3,inf", "1,2,3,1e39", "1, 2,3,4"):
            for option in ("--head-scale", "--alibi-slopes", "--sinks"):
                self.both(2, f"{option} is '{value}'; expected X,X,..., finite numbers", option, value)
        self.both(2, "--head-scale is '1,1,1,-inf'", "--head-scale", "1,1,1,-inf")
        for value in ("0", "-1", "x", "inf"):
            self.both(2, f"--softcap is '{value}'; expected a finite number above 0", "--softcap", value)
        for value in ("0.5", "", "nan", "inf", "1x", "x"):
            self.both(2, f"--rope-base is '{value}'; expected a finite number of at least 1", "--rope", "half",
                      "--rope-base", value)
        for value in ("1", "-0.1", "x", ""):
            self.fails(2, f"--dropout is '{value}'; expected a number from 0 to below 1", *self.RUN, "--dropout", value)
        self.both(2, "--rope is 'full'; expected half or interleaved", "--rope", "full")
        self.both(2, "--rope-scaling is 'plain'; expected linear, ntk, yarn, llama3 or longrope", "--rope", "half",
                  "--rope-scaling", "plain", "--rope-factor", "2")
        self.both(2, "--buckets is 'log'; expected clipped, t5 or t5-bidirectional", "--relative-bias", "b.npy",
                  "--buckets", "log")
        self.both(2, "--rel-delta is '1'; expected query-key or key-query", "--rel-q", "d.npy", "--rel-delta", "1")
        self.both(2, "--block-pattern is 'x'; expected longformer, bigbird or strided", "--block-pattern", "x",
                  "--block-window", "1")
        self.both(2, "--block is '24'; expected a multiple of 16", "--block-pattern", "strided", "--block", "24")
        self.both(2, "--block is '0'", "--block-pattern", "strided", "--block", "0")
        self.both(2, "--prefix is '-1'; expected N,N,..., whole numbers of at least 0", "--prefix", "-1", "--causal",
                  "top-left")
        self.both(2, "--query-offset is '9007199254740993'; expected N,N,..., whole numbers from -9007199254740992 to "
                  "9007199254740992", "--query-offset", "9007199254740993", "--alibi")
        self.both(2, "--causal is 'both'; expected none, top-left, bottom-right or offset", "--causal", "both")

    def test_lists_that_do_not_fit_the_inputs(self):
        for option in ("--head-scale", "--alibi-slopes", "--sinks"):
            self.both(2, f"{option} has 3 values; expected 4, one for each query head", option, "1,2,3")
        self.both(2, "--prefix has 3 values; expected 1, or 2, one per batch element", "--prefix", "1,2,3", "--causal",
                  "top-left")
        self.both(2, "--rope-pairs is 5; expected 1 to 4, half of the head size of q", "--rope", "half", "--rope-pairs",
                  "5")
        self.both(1, "q has 2 batch elements; expected 1, as --cu-seqlens cuts its tokens", "--cu-seqlens", "0,9")
        self.write(q_npy=normal((1, 4, 9, 8), 1), k_npy=normal((1, 2, 8, 8), 2), n_npy=Array((1,), (3,), "<i4"))
        self.both(2, "--cu-seqlens ends with 10; expected at most 9, the tokens of q", "--cu-seqlens", "0,10")
        self.both(2, "--cu-seqlens ends with 9; expected at most 8, the tokens of k", "--cu-seqlens", "0,9")
        self.both(2, "--cu-seqlens-k ends with 9; expected at most 8, the tokens of k", "--cu-seqlens", "0,9",
                  "--cu-seqlens-k", "0,9")
        self.both(1, "--kv-len n.npy has shape (1,); expected (2,), one value per sequence", "--cu-seqlens", "0,3,8",
                  "--kv-len", "n.npy")

    def test_files_that_do_not_fit(self):
        self.both(1, "--relative-bias c.npy has dtype float32 and shape (3, 7); expected float32 and (4, N)",
                  "--relative-bias", "c.npy")
        self.both(1, "--relative-bias s.npy has dtype int32", "--relative-bias", "s.npy")
        for option in ("--rel-k", "--rel-q"):
            for name, shape in (("c.npy", "(3, 7)"), ("s.npy", "(2, 9)"), ("q.npy", "(2, 4, 9, 8)")):
                self.both(1, f"{option} {name} has dtype ", option, name)
                self.both(1, f" and shape {shape}; expected float32 and (2 span, 8) or (4, 2 span, 8)", option, name)
        self.both(1, "--rel-q b.npy has 4 rows; expected 6, as --rel-k has", "--rel-k", "d.npy", "--rel-q", "b.npy")
        self.both(1, "none.npy", "--relative-bias", "none.npy")
        self.both(1, "--segments b.npy has dtype float32; expected int32 or int64", "--segments", "b.npy")
        self.both(1, "--segments s.npy has shape (2, 9); expected (2, 11): batch, key", "--segments", "s.npy")
        self.both(1, "--segments-k l.npy holds 2147483648; expected numbers of 32 bits", "--segments", "s.npy",
                  "--segments-k", "l.npy")

    def test_trees_that_do_not_fit(self):
        self.both(1, "--tree b.npy has dtype float32; expected int32 or int64", "--tree", "b.npy")
        for shape in ((), (0,), (2, 0), (3, 2), (1, 4), (2, 1, 3)):
            self.write(t_npy=Array(shape, [-1] * math.prod(shape), "<i4"))
            text = "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"
            self.both(1, f"--tree t.npy has shape {text}; expected (N,) or (2, N), N at least 1: drafts, or batch "
                      "element, drafts", "--tree", "t.npy")
        for at, parent in ((0, 0), (0, 1), (0, -2), (2, 2), (2, 2**31 - 1), (1, -2**31)):
            for code in ("<i4", "<i8"):
                row = [-1, 0, 1]
                row[at] = parent
                says = "; expected -1, or the number of a draft before it"
                self.write(t_npy=Array((3,), row, code), u_npy=Array((2, 3), [-1, 0, 0, *row], code))
                self.both(1, f"--tree t.npy has {parent} at ({at},){says}", "--tree", "t.npy")
                self.both(1, f"--tree u.npy has {parent} at (1, {at}){says}", "--tree", "u.npy")
        self.write(t_npy=Array((12,), [-1] * 12, "<i4"), u_npy=Array((2, 6), [-1] * 12, "<i8"),
                   m_npy=Array((2,), (11, 8), "<i4"), n_npy=Array((2,), (6, 3), "<i4"))
        self.both(1, "--tree t.npy has 12 drafts; expected at most 11, the live keys of batch element 0", "--tree",
                  "t.npy")
        self.both(1, "--tree u.npy has 6 drafts; expected at most 3, the live keys of batch element 1", "--tree",
                  "u.npy", "--kv-len", "n.npy")
        self.both(1, "--tree u.npy has 6 drafts; expected at most 5, the live keys of batch element 0", "--tree",
                  "u.npy", "--kv-start", "n.npy")
        for option, first in (("--kv-len", 11), ("--kv-start", 0)):
            for second in (2**63 - 1, -2**63):
                self.write(n_npy=Array((2,), (first, second), "<i8"))
                self.both(2, f"{option}[1] is {second}; expected", "--tree", "u.npy", "--rope", "half", option, "n.npy")
        self.write(q_npy=normal((1, 4, 9, 8), 1), k_npy=normal((1, 2, 8, 8), 2), t_npy=Array((3,), [-1] * 3, "<i4"))
        self.both(1, "--tree t.npy has 3 drafts; expected at most 2, the live keys of sequence 1", "--tree", "t.npy",
                  "--cu-seqlens", "0,4,9", "--cu-seqlens-k", "0,6,8")

    def test_numbers_of_rope_scalings(self):
        yarn = ("--rope", "half", "--rope-scaling", "yarn", "--rope-factor", "2", "--rope-original-length", "9")
        llama3 = (*yarn[:3], "llama3", *yarn[4:])
        longrope = (*yarn[:3], "longrope", *yarn[4:])
        four = ("--rope-short-factor", "1,1,1,1", "--rope-long-factor", "1,1,1,1")
        self.both(2, "attn: --rope-beta-fast is 1; expected at least --rope-beta-slow, 2", *yarn, "--rope-beta-fast", "1",
                  "--rope-beta-slow", "2")
        self.both(2, "attn: --rope-high-freq-factor is 4; expected more than --rope-low-freq-factor, 5", *llama3,
                  "--rope-low-freq-factor", "5")
        self.both(2, "attn: --rope-original-length is 1; expected 2 or more for --rope-scaling longrope without "
                  "--rope-attention-factor", *longrope[:-1], "1", *four)
        for option in ("--rope-short-factor", "--rope-long-factor"):
            line = [word if word != option else "--rope-length" for word in four]
            line[line.index("--rope-length") + 1] = "3"
            self.both(2, f"attn: option {option} X,X,... is missing; --rope-scaling longrope needs it", *longrope, *line)
            line = list(four)
            line[line.index(option) + 1] = "1,1,1"
            self.both(2, f"attn: {option} has 3 values; expected 4, one for each pair of channels", *longrope, *line)
            for value in ("", "1,1,1,0", "1,1,1,-1", "1,1,1,nan", "1,1,1,1e39", "1,1,1,1e-39", "1,1,1,", "x"):
                line[line.index(option) + 1] = value
                self.both(2, f"attn: {option} is '{value}'; expected X,X,..., positive numbers", *longrope, *line)
        for option in ("--rope-beta-fast", "--rope-beta-slow", "--rope-attention-factor"):
            for value in ("0", "-1", "nan", "inf", "x", ""):
                self.both(2, f"attn: {option} is '{value}'; expected a", *yarn, option, value)
        for value in ("0", "x"):
            self.both(2, f"attn: --rope-low-freq-factor is '{value}'; expected a finite number above 0", *llama3,
                      "--rope-low-freq-factor", value)

    def test_patterns_of_files(self):
        def run(code, says, offsets, columns, *more, kind="<i8"):
            self.write(f_npy=Array((len(offsets),), offsets, kind), b_npy=Array((len(columns),), columns, kind))
            self.both(code, says, "--block-offsets", "f.npy", "--block-columns", "b.npy", "--block", "16", *more)
        ends = "attn: --block-offsets f.npy ends with"
        run(1, f"{ends} 2; expected 1, the blocks of --block-columns", [0, 2], [0])
        run(1, "attn: --block-offsets f.npy has 3 values; expected 2 or 5, one for each row of blocks of one head or of all, "
            "and the end", [0, 1, 1], [0])
        run(1, "attn: --block-offsets f.npy has 0 values; expected 2 or 5", [], [])
        run(1, "attn: --block-offsets f.npy has 1 at (0,); expected 0 first", [1, 1], [0])
        run(1, "attn: --block-offsets f.npy has -1 at (2,); expected 0 first, and none below", [0, 1, -1, 1, 1], [0])
        run(2, "attn: --block-columns[0] is 1 in block row 0 of head 0; expected 0 to 0, a block", [0, 1], [1])
        run(1, "holds 4294967296; expected numbers of 32 bits", [0, 1], [2**32])
        run(1, "has dtype float32 and shape (2,); expected int32 or int64 and (N,)", [0, 1], [0], kind="<f4")
        self.both(2, "--block-pattern and --block-offsets both give a pattern", "--block-offsets", "f.npy",
                  "--block-columns", "b.npy", "--block-pattern", "strided")
        self.both(2, "--block-heads is 3; expected 1 or 4, the heads of -q", "--block-pattern", "bigbird", "--block-heads",
                  "3")

    def test_rounded_keys(self):
        bad = normal((2, 2, 11, 8), 2)
        bad.values[5] = math.nan
        self.write(nan_npy=bad)
        line = list(self.RUN)
        line[line.index("-k") + 1] = "nan.npy"
        self.fails(2, "attn: the scales of --kv-type for -k[0][0][0] is nan; expected", *line, "--kv-type", "int8")

    def test_errors_of_the_library(self):
        """Everything that only the library finds, in the words of the command. test_files has q, k, v and lengths."""
        self.write(one_npy=Array((4, 1), [0.0] * 4), seven_npy=normal((4, 7), 5), wide_npy=normal((1, 4, 2, 1040), 6),
                   wider_npy=normal((1, 4, 2, 2050), 6), rows_npy=normal((4, 1040), 7))
        buckets = "the number of buckets of --relative-bias is"
        self.both(2, f"{buckets} 8; expected 9, twice --max-distance and 1", "--relative-bias", "b.npy")
        self.both(2, f"{buckets} 7; expected 5, twice --max-distance and 1", "--relative-bias", "seven.npy",
                  "--max-distance", "2")
        self.both(2, f"{buckets} 7; expected an even number, 4 or more", "--relative-bias", "seven.npy", "--buckets",
                  "t5-bidirectional")
        self.both(2, f"{buckets} 1; expected 2 or more", "--relative-bias", "one.npy", "--buckets", "t5")
        self.both(2, "attn: --max-distance is 4; expected more than 4", "--relative-bias", "b.npy",
                  "--buckets", "t5", "--max-distance", "4")
        self.both(1, "attn: --max-distance is 4611686018427387904; expected", "--relative-bias", "b.npy",
                  "--max-distance", 1 << 62)
        for option in ("--rel-k", "--rel-q"):
            self.both(1, "attn: --rel-k or --rel-q and --rope are set; expected one of the two", option, "d.npy",
                      "--rope", "half")
            # A processor without int8 dot products is the first thing to say where there are none.
            has_int8 = "this processor has no int8" not in self.attn("info").stdout
            self.both(1, "attn: --rel-k or --rel-q is set and --qk is int8; expected one of the two" if has_int8
                      else "attn: --qk is int8, and this processor has no int8", option, "d.npy", "--qk", "int8")
            self.fails(1, "the head size of -q is 1040; head sizes with --rel-k or --rel-q go up to 1024", "run", "-q",
                       "wide.npy", "-k", "wide.npy", "-v", "wide.npy", "-o", "o.npy", option, "rows.npy")
        self.fails(1, "the head size of -q is 2050; head sizes with --rope go up to 2048", "run", "-q", "wider.npy",
                   "-k", "wider.npy", "-v", "wider.npy", "-o", "o.npy", "--rope", "half")
        rope = ("--rope", "half", "--rope-scaling")
        self.both(2, "attn: --rope-factor is 1e+300; expected", *rope, "ntk", "--rope-factor", "1e300")
        self.both(2, "attn: --rope-pairs is 1; expected 2 or more for --rope-scaling ntk", *rope, "ntk",
                  "--rope-factor", "2", "--rope-pairs", "1")
        self.both(2, "attn: --rope-base is 1; expected more than 1 for --rope-scaling yarn", *rope, "yarn",
                  "--rope-factor", "2", "--rope-base", "1", "--rope-original-length", "8")
        self.both(2, f"attn: --query-offset puts 9 queries at {2**53 - 8} and after it; expected positions below 2^53",
                  "--rope", "half", "--causal", "offset", "--query-offset", 2**53 - 8)
        self.both(2, "attn: --global[0] is 11; expected 0 to 10", "--window", "1,1", "--global", "11")
        self.both(2, "attn: the number of positions of --global is 12; expected 0 to 11", "--window", "1,1", "--global",
                  ",".join(map(str, range(12))))
        self.both(2, "attn: --head-scale[0] is 1e+38; expected", "--head-scale", "1e38,1,1,1", "--scale", "1e30")
        self.both(2, "attn: --temperature is 0.001; expected", "--scale", "1e38", "--temperature", "1e-3")
        self.fails(2, "attn: --dropout is 1; expected 0 or more and less than 1", *self.RUN, "--dropout", "0.99999999999")
        self.both(1, "attn: --qk is int8, and ", "--qk", "int8", "--isa", "scalar")
        foreign = "avx2" if platform.machine() == "aarch64" else "neon"
        self.both(2, f"attn: --isa is '{foreign}'; expected auto, scalar", "--isa", foreign)

    def test_outputs_do_not_replace_these_inputs(self):
        for option, name in (("--relative-bias", "b.npy"), ("--segments", "s.npy"), ("--rel-k", "d.npy"),
                             ("--rel-q", "d.npy"), ("--tree", "s.npy")):
            self.fails(2, f"--lse would replace {name}, which {option} reads", *self.RUN, option, name, "--lse", name)
        self.fails(2, "--lse would replace l.npy, which --segments-k reads", *self.RUN, "--segments", "s.npy",
                   "--segments-k", "l.npy", "--lse", "l.npy")

    def test_help(self):
        for command, more in (("run", ["--dropout", "--seed", "--offset"]), ("heatmap", [])):
            text = self.attn(command, "--help").stdout
            for option in ["--softcap", "--head-scale", "--sinks", "--alibi", "--alibi-slopes", "--relative-bias",
                           "--buckets", "--max-distance", "--rel-k", "--rel-q", "--rel-delta", "--rope", "--rope-pairs",
                           "--rope-base", "--rope-scaling", "--rope-factor", "--rope-original-length",
                           "--query-offset", "--window", "--first-tokens",
                           "--global", "--prefix", "--segments", "--segments-k", "--tree", "--cu-seqlens",
                           "--cu-seqlens-k", "--block-pattern", "--block", "--block-window", "--block-global", "--block-random",
                           "--block-seed", "--block-stride", *more]:
                self.assertRegex(text, rf"(?m)^ +{option} ")


if __name__ == "__main__":
    unittest.main()
