# SPDX-License-Identifier: Apache-2.0
"""attn heatmap: pictures decoded and looked at where the colours must be."""

import math
import unittest

from png import Picture
from support import DATA, Array, CommandTest, normal

LOW, HIGH, GREY = (68, 1, 84), (253, 231, 37), (190, 190, 190)
BAR = (47, 108, 142)
COLOUR_BAR_WIDTH = 16


def identity(n, head=1):
    return [1.0 if i == j else 0.0 for _ in range(head) for i in range(n) for j in range(n)]


class Heatmap(CommandTest):
    def picture(self, *arguments):
        result = self.attn("heatmap", *arguments, "-o", "o.png")
        self.assertEqual(result.stdout + result.stderr, "")
        return Picture(self.folder / "o.png")

    def cells(self, picture, colour=HIGH):
        """The rectangles of a colour, without the ends of the colour bar and single pixels of grey text."""
        return [box for box in picture.boxes(colour)
                if box[2] != COLOUR_BAR_WIDTH and (colour != GREY or box[2] > 4)]

    def test_cells_stand_on_the_diagonal(self):
        self.write(w_npy=Array((4, 4), identity(4)))
        boxes = self.cells(self.picture("w.npy"))
        self.assertEqual(len(boxes), 4, boxes)
        x, y, side, _ = boxes[0]
        self.assertGreaterEqual(side, 20)
        self.assertEqual(boxes, [(x + i * side, y + i * side, side, side) for i in range(4)])

    def test_rows_are_queries(self):
        self.write(w_npy=Array((2, 3), (0, 0, 1, 0, 0, 0)))
        picture = self.picture("w.npy", "--size", "60")
        ((x, y, width, height),) = self.cells(picture)
        self.assertEqual((width, height), (20, 30) if height == 30 else (20, 20))
        self.assertEqual(picture.at(x - 1, y), LOW)
        self.assertEqual(picture.at(x, y + height), LOW)
        self.assertNotEqual(picture.at(x + width, y), LOW)

    def test_scale(self):
        self.write(w_npy=Array((2, 2), (0.25, 0, 0, 0.5)))
        self.assertEqual(len(self.cells(self.picture("w.npy"))), 1)
        self.assertEqual(len(self.cells(self.picture("w.npy", "--max", "0.25"))), 2)
        self.assertEqual(len(self.cells(self.picture("w.npy", "--max", "1"))), 0)

    def test_nan_is_grey_and_zeros_are_dark(self):
        self.write(w_npy=Array((2, 2), (math.nan, 0, 0, 1)), z_npy=Array((2, 2), (0, 0, 0, 0)))
        self.assertEqual(len(self.cells(self.picture("w.npy"), GREY)), 1)
        ((_, _, width, height),) = self.cells(self.picture("z.npy"), LOW)
        self.assertEqual(width, height)

    def test_heads_make_a_grid(self):
        values = [0.0] * (3 * 16)
        for head in range(3):
            values[head * 16 + head * 5] = 1.0
        self.write(w_npy=Array((3, 4, 4), values))
        boxes = self.cells(self.picture("w.npy"))
        self.assertEqual(len(boxes), 3)
        single = self.cells(self.picture("w.npy", "--head", "2"))
        self.assertEqual(len(single), 1)

    def test_batch_and_head_select(self):
        values = [0.0] * (2 * 2 * 4)
        values[(1 * 2 + 0) * 4 + 3] = 1.0
        self.write(w_npy=Array((2, 2, 2, 2), values))
        self.assertEqual(len(self.cells(self.picture("w.npy", "--batch", "1", "--head", "0"))), 1)
        self.assertEqual(len(self.cells(self.picture("w.npy", "--batch", "1", "--head", "1"))), 0)
        self.assertEqual(len(self.cells(self.picture("w.npy", "--batch", "0", "--head", "0"))), 0)

    def test_large_matrices_are_averaged(self):
        # One bright element in each block of 4 x 4 on the diagonal: the mean is 1/16 there.
        n = 256
        values = [0.0] * (n * n)
        for i in range(0, n, 4):
            values[i * n + i] = 1.0
        self.write(w_npy=Array((n, n), values))
        boxes = self.cells(self.picture("w.npy", "--size", "64", "--max", "0.0625"))
        x, y = boxes[0][:2]
        self.assertEqual(boxes, [(x + i, y + i, 1, 1) for i in range(64)])
        self.assertEqual(self.cells(self.picture("w.npy", "--size", "64", "--max", "0.08")), [])

    def test_bars(self):
        self.write(w_npy=Array((2, 4), (9, 9, 9, 9, 1.0, 0.5, 0.0, 0.25)))
        boxes = self.picture("w.npy", "--row", "1").boxes(BAR)
        self.assertEqual(len(boxes), 3, boxes)
        boxes.sort()
        heights = [box[3] for box in boxes]
        self.assertAlmostEqual(heights[1] / heights[0], 0.5, delta=0.02)
        self.assertAlmostEqual(heights[2] / heights[0], 0.25, delta=0.02)
        self.assertEqual(len({box[1] + box[3] for box in boxes}), 1, "the bars do not stand on one line")
        # The third of four is zero: the last bar is two places from the second.
        step = boxes[1][0] - boxes[0][0]
        self.assertEqual(boxes[2][0] - boxes[1][0], 2 * step)

    def test_bars_keep_peaks(self):
        values = [0.0] * 10000
        values[5003] = 1.0
        self.write(w_npy=Array((1, 10000), values))
        ((_, _, width, height),) = self.picture("w.npy", "--row", "0").boxes(BAR)
        self.assertEqual(width, 1)
        self.assertGreater(height, 200)

    def same(self, first, second):
        for name, options in (("1.png", first), ("2.png", second)):
            self.attn("heatmap", *options, "-o", name)
        one, two = ((self.folder / name).read_bytes() for name in ("1.png", "2.png"))
        self.assertTrue(one == two, f"{first} and {second} differ")

    def compute(self, *options):
        """Weights of q and k by attn run, to be drawn from the file."""
        self.attn("run", "-q", "q.npy", "-k", "k.npy", "-v", "k.npy", "-o", "o.npy", "--weights", "w.npy", *options)

    def test_computed_weights_are_those_of_run(self):
        mask = Array((4, 1, 9), [(7 * i) % 5 != 0 for i in range(36)], "|b1")
        self.write(q_npy=normal((2, 4, 11, 6), 1), k_npy=normal((2, 2, 9, 6), 2), m_npy=mask,
                   n_npy=Array((2,), (9, 7), "<i8"), s_npy=Array((2,), (0, 2), "<i4"))
        for options in ((), ("--causal", "top-left"), ("--causal", "bottom-right", "--kv-len", "n.npy"),
                        ("--mask", "m.npy", "--temperature", "0.5"), ("--scale", "2", "--kv-start", "s.npy"),
                        ("--isa", "scalar", "--threads", "1")):
            self.compute(*options)
            for select in ((), ("--batch", "1"), ("--batch", "1", "--head", "3"), ("--head", "2", "--row", "10")):
                self.same(("w.npy", *select), ("-q", "q.npy", "-k", "k.npy", *options, *select))

    def test_layout(self):
        self.write(q_npy=normal((11, 2, 6), 1), k_npy=normal((9, 2, 6), 2))
        self.compute("--layout", "bthd", "--causal", "bottom-right")
        self.same(("w.npy",), ("-q", "q.npy", "-k", "k.npy", "--layout", "bthd", "--causal", "bottom-right"))

    def test_blocks_of_rows_join(self):
        # With a limit of one MiB the 1100 rows of 2200 bytes and more come in several blocks.
        rows = 1100
        source = Array((4, 1, rows), [(3 * i) % 7 != 0 for i in range(4 * rows)], "|b1")
        mask = Array((rows, rows), [source.values[(i + j) % (4 * rows)] for i in range(rows) for j in range(rows)],
                     "|b1")
        self.write(q_npy=normal((rows, 4), 1, 3.0), k_npy=normal((rows, 4), 2, 3.0), m_npy=mask)
        common = ("-q", "q.npy", "-k", "k.npy", "--causal", "bottom-right", "--size", "200")
        self.same(common, (*common, "--limit-mib", "1"))
        self.same((*common, "--mask", "m.npy"), (*common, "--mask", "m.npy", "--limit-mib", "2"))
        self.fails(1, "above the limit of 1.0 MiB (--limit-mib)", "heatmap", *common, "--mask", "m.npy", "--limit-mib",
                   "1", "-o", "o.png")

    def test_limit(self):
        self.write(w_npy=Array((1, 300000), [0.0] * 300000), v_npy=Array((2, 2), (0, 1, 0, 0)))
        self.fails(1, "a row of 300000 weights is above the limit of 1 MiB", "heatmap", "w.npy", "--limit-mib", "1",
                   "-o", "o.png")
        self.fails(1, "the picture of", "heatmap", "v.npy", "--size", "4000", "--limit-mib", "1", "-o", "o.png")
        self.picture("w.npy", "--limit-mib", "2")

    def test_too_many_heads_and_nothing_to_draw(self):
        self.write(w_npy=Array((65, 1, 1), [1.0] * 65), e_npy=Array((3, 0), ()))
        self.fails(2, "65 heads are too many", "heatmap", "w.npy", "-o", "o.png")
        self.picture("w.npy", "--head", "64")
        self.fails(1, "nothing to draw", "heatmap", "e.npy", "-o", "o.png")

    def test_labels(self):
        self.write(w_npy=Array((4, 4), identity(4)), l_txt="[CLS]\nein\nWört\n東京".encode(), five_txt=b"a\n" * 5,
                   three_txt=b"a\r\nb\r\n\xff\xfe\r\n")
        plain = self.picture("w.npy")
        labelled = self.picture("w.npy", "--labels", "l.txt")
        self.assertNotEqual(plain.rows, labelled.rows)
        self.assertEqual(len(self.cells(labelled)), 4)
        self.same(("w.npy", "--labels", "l.txt"), ("w.npy", "--row-labels", "l.txt", "--column-labels", "l.txt"))
        self.fails(1, "five.txt has 5 lines; expected 4, one for each query", "heatmap", "w.npy", "--labels",
                   "five.txt", "-o", "o.png")
        self.fails(1, "three.txt has 3 lines; expected 4, one for each key", "heatmap", "w.npy", "--column-labels",
                   "three.txt", "-o", "o.png")
        self.fails(1, "none.txt: cannot open", "heatmap", "w.npy", "--labels", "none.txt", "-o", "o.png")
        # Queries and keys of different number each need their own.
        self.write(r_npy=Array((3, 4), [0.5] * 12))
        self.picture("r.npy", "--row-labels", "three.txt", "--column-labels", "l.txt")
        self.fails(1, "expected 3, one for each query", "heatmap", "r.npy", "--labels", "l.txt", "-o", "o.png")

    def test_title_changes_only_the_top(self):
        self.write(w_npy=Array((4, 4), identity(4)))
        plain, titled = self.picture("w.npy"), self.picture("w.npy", "--title", "X")
        self.assertNotEqual(plain.rows[:40], titled.rows[:40])
        self.assertEqual(self.cells(plain), self.cells(titled))

    def test_real_sample(self):
        sample = DATA / "minilm.safetensors"
        options = ("-q", f"{sample}:layer0.q", "-k", f"{sample}:layer0.k", "--kv-len", f"{sample}:kv_len", "--labels",
                   DATA / "tokens.txt")
        grid = self.picture(*options, "--size", "104")
        # Four panels across and three down.
        self.assertGreater(grid.width, 4 * 104)
        self.assertGreater(grid.height, 3 * 104)
        # The brightest of head 3 is what [CLS] gives to the last token.
        ((x, y, width, height),) = self.cells(self.picture(*options, "--head", "3"))
        self.assertEqual(width, height)


class Forms(CommandTest):
    """A picture straight from q and k, computed by rows of one head, is that of the weights that run writes."""

    def same(self, options, selections=((), ("--batch", "1", "--head", "2"), ("--head", "3", "--row", "31"))):
        common = ("-q", "q.npy", "-k", "k.npy", *map(str, options))
        self.attn("run", *common, "-v", "k.npy", "-o", "o.npy", "--weights", "w.npy")
        for select in selections:
            for name, what in (("1.png", ("w.npy",)), ("2.png", common)):
                self.attn("heatmap", *what, *select, "-o", name)
            one, two = ((self.folder / name).read_bytes() for name in ("1.png", "2.png"))
            self.assertTrue(one == two, f"{options} with {select}")

    def test_rows(self):
        labels = [n % 3 for n in range(2 * 40)]
        self.write(q_npy=normal((2, 4, 40, 8), 1, 2.0), k_npy=normal((2, 2, 40, 8), 2, 2.0), b_npy=normal((4, 9), 3),
                   r_npy=normal((4, 12, 8), 4),
                   s_npy=Array((2, 40), labels, "<i4"), n_npy=Array((2,), (40, 33), "<i8"),
                   t_npy=Array((2, 20), [(n % 20 - 1) // 2 for n in range(20)] + [n - 1 for n in range(20)], "<i4"))
        for options in (("--softcap", 3, "--head-scale", "1,2,-1,0.5", "--sinks", "1,-inf,0,2"),
                        ("--alibi", "--causal", "bottom-right", "--kv-len", "n.npy"),
                        ("--relative-bias", "b.npy", "--query-offset", "3,-4"),
                        ("--rel-k", "r.npy", "--causal", "bottom-right"), ("--rel-q", "r.npy", "--query-offset", -1),
                        ("--rel-q", "r.npy", "--rel-delta", "key-query"),
                        ("--tree", "t.npy", "--causal", "bottom-right", "--kv-len", "n.npy", "--rope", "half"),
                        ("--rope", "half", "--causal", "bottom-right", "--kv-len", "n.npy"),
                        ("--rope", "interleaved", "--rope-base", 100, "--query-offset", 7),
                        ("--window", "5,2", "--first-tokens", 2, "--global", "7,30", "--query-offset", "1,-2"),
                        ("--prefix", "8,20", "--causal", "top-left"), ("--segments", "s.npy", "--causal", "top-left"),
                        ("--block-pattern", "bigbird", "--block", 16, "--block-window", 0, "--block-random", 1),
                        ("--block-pattern", "strided", "--block", 16, "--causal", "top-left", "--alibi")):
            self.same(options)

    def test_ragged_rows(self):
        self.write(q_npy=normal((1, 4, 100, 8), 1, 2.0), k_npy=normal((1, 2, 110, 8), 2, 2.0),
                   n_npy=Array((4,), (30, 0, 10, 40), "<i8"),
                   t_npy=Array((4, 5), [-1, 0, 0, 1, 1, -1, 0, 1, 2, 3, -1, -1, 0, 1, 1, -1, 0, 0, 0, 2], "<i8"))
        one = ((), ("--head", "3", "--row", "31"), ("--head", "1", "--row", "99"))
        for options in ((), ("--causal", "bottom-right", "--kv-len", "n.npy"), ("--rope", "half", "--alibi"),
                        ("--window", "4,4", "--global", "3,20,70", "--query-offset", "0,3,-2,1"),
                        ("--block-pattern", "longformer", "--block", 16, "--causal", "top-left"),
                        ("--tree", "t.npy", "--rope", "half", "--causal", "bottom-right"),
                        ("--prefix", "5", "--causal", "top-left")):
            self.same(("--cu-seqlens", "0,30,30,41,95", "--cu-seqlens-k", "0,33,40,52,107", *options), one)

    def test_blocks_of_rows_join(self):
        # With a limit of one MiB the rows come in several blocks, which do not end where blocks of a pattern do.
        self.write(q_npy=normal((1100, 4), 1, 3.0), k_npy=normal((1100, 4), 2, 3.0),
                   t_npy=Array((1000,), [n - 1 - n % 3 % 2 if n else -1 for n in range(1000)], "<i4"))
        for options in (("--block-pattern", "bigbird", "--causal", "top-left"), ("--window", "50,20", "--alibi"),
                        ("--cu-seqlens", "0,500,1090", "--block-pattern", "longformer", "--block", "32"),
                        ("--tree", "t.npy")):
            common = ("heatmap", "-q", "q.npy", "-k", "k.npy", "--size", "200", *options, "-o")
            self.attn(*common, "1.png")
            self.attn(*common, "2.png", "--limit-mib", "1")
            one, two = ((self.folder / name).read_bytes() for name in ("1.png", "2.png"))
            self.assertTrue(one == two, options)


if __name__ == "__main__":
    unittest.main()
