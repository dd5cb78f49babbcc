# SPDX-License-Identifier: Apache-2.0
"""attn heatmap: pictures decoded and looked at where the colours must be."""

import math
import re
import unittest
import xml.etree.ElementTree
import zlib

from png import Picture
from support import DATA, Array, CommandTest, in_turns, normal

LOW, HIGH, HIDDEN, NAN = (68, 1, 84), (253, 231, 37), (213, 216, 222), (214, 39, 40)
BAR = (47, 108, 142)
COLOUR_BAR_WIDTH = 16


def identity(n, head=1):
    return [1.0 if i == j else 0.0 for _ in range(head) for i in range(n) for j in range(n)]


class Heatmap(CommandTest):
    def picture(self, *arguments, says=None):
        """Draws; says is what stderr holds, which is empty without it."""
        result = self.attn("heatmap", *arguments, "-o", "o.png")
        self.assertEqual(result.stdout, "")
        if says is None:
            self.assertEqual(result.stderr, "")
        else:
            self.assertRegex(result.stderr, r"\Aattn: [^\n]+\n\Z")
            self.assertIn(says, result.stderr)
        return Picture(self.folder / "o.png")

    def cells(self, picture, colour=HIGH):
        """The rectangles of a colour, without the ends of the colour bar."""
        return [box for box in picture.boxes(colour) if box[2] != COLOUR_BAR_WIDTH]

    def place(self, picture, colour):
        """Where on the colour bar a colour is, 0 being its lower end."""
        x = max(box[0] for box in picture.boxes(HIGH)) + 1
        column = [picture.at(x, y) for y in range(picture.height)]
        column = column[column.index(HIGH):len(column) - column[::-1].index(LOW)]
        places = [y for y, found in enumerate(column) if found == colour]
        return 1 - (places[0] + places[-1] + 1) / 2 / len(column)

    def test_cells_stand_on_the_diagonal(self):
        self.write(w_npy=Array((4, 4), identity(4)))
        boxes = self.cells(self.picture("w.npy"))
        self.assertEqual(len(boxes), 4, boxes)
        x, y, side, _ = boxes[0]
        self.assertGreaterEqual(side, 20)
        self.assertEqual(boxes, [(x + i * side, y + i * side, side, side) for i in range(4)])

    def test_rows_are_queries(self):
        self.write(w_npy=Array((2, 3), (0, 0, 1, 0, 0, 0)))
        picture = self.picture("w.npy", "--size", "60", "--hidden", "none")
        ((x, y, width, height),) = self.cells(picture)
        self.assertEqual((width, height), (20, 30) if height == 30 else (20, 20))
        self.assertEqual(picture.at(x - 1, y), LOW)
        self.assertEqual(picture.at(x, y + height), LOW)
        self.assertNotEqual(picture.at(x + width, y), LOW)

    def test_scale(self):
        self.write(w_npy=Array((2, 2), (0.25, 0.75, 0.5, 0.5)))
        self.assertEqual(len(self.cells(self.picture("w.npy"))), 1)
        self.assertEqual(len(self.cells(self.picture("w.npy", "--max", "all"))), 1)
        self.assertEqual(self.picture("w.npy", "--max", "0.5").area(HIGH) // 3136, 3)
        self.assertEqual(len(self.cells(self.picture("w.npy", "--max", "1"))), 0)

    def test_nan_is_red_and_zeros_are_hidden_or_dark(self):
        self.write(w_npy=Array((2, 2), (math.nan, 0, 0, 1)), z_npy=Array((2, 2), (0, 0, 0, 0)))
        picture = self.picture("w.npy", says="it holds 1 NaN or infinities")
        self.assertEqual([len(self.cells(picture, colour)) for colour in (NAN, HIDDEN, HIGH, LOW)], [1, 2, 1, 0])
        picture = self.picture("w.npy", "--hidden", "none", says="NaN")
        self.assertEqual([len(self.cells(picture, colour)) for colour in (NAN, HIDDEN, HIGH, LOW)], [1, 0, 1, 2])
        ((_, _, width, height),) = self.cells(self.picture("z.npy"), HIDDEN)
        self.assertEqual(width, height)
        ((_, _, width, height),) = self.cells(self.picture("z.npy", "--hidden", "none"), LOW)
        self.assertEqual(width, height)

    def test_hidden_keys_are_told_from_weight_zero(self):
        # Scores so far apart that a weight is 0 in f32, and a causal mask that hides three of nine keys.
        self.write(q_npy=Array((3, 1), (1, 1, 1)), k_npy=Array((3, 1), (500, 0, 500)))
        options = ("-q", "q.npy", "-k", "k.npy", "--causal", "top-left", "--size", "90")
        for more, hidden, low in (((), 3, 2), (("--hidden", "zero"), 5, 0), (("--hidden", "none"), 0, 5)):
            picture = self.picture(*options, *more)
            self.assertEqual([picture.area(colour) // 900 for colour in (HIDDEN, LOW)], [hidden, low], more)

    def test_scales(self):
        # The greatest weight, a sixteenth of it and a sixty-fourth, which is the least.
        self.write(w_npy=Array((3, 3), (64 / 69, 4 / 69, 1 / 69) * 3), n_npy=Array((1, 2), (1.25, -0.25)))
        for scale, places in (("linear", (1 / 16, 1 / 64)), ("sqrt", (1 / 4, 1 / 8)), ("log", (1 / 3, 0))):
            picture = self.picture("w.npy", "--scale", scale, "--size", "300")
            ((x, y, width, _),) = self.cells(picture)
            for cell, place in enumerate(places, 1):
                self.assertAlmostEqual(self.place(picture, picture.at(x + cell * width, y)), place, delta=0.01)
        # Bars have the same scales.
        for scale, least, most in (("linear", 0.05, 0.08), ("sqrt", 0.24, 0.27), ("log", 0.3, 0.36)):
            boxes = self.picture("w.npy", "--scale", scale, "--row", "0").boxes(BAR)
            heights = [box[3] for box in sorted(boxes)]
            self.assertTrue(least < heights[1] / heights[0] < most, (scale, heights))
        for scale in ("sqrt", "log"):
            self.fails(1, f"--scale {scale} is for values from 0 on, but the least one is -0.25", "heatmap", "n.npy",
                       "--scale", scale, "-o", "x.png")
        # A number is what multiplies the scores, and both can be asked for.
        self.write(q_npy=normal((4, 4), 1), k_npy=normal((4, 4), 2))
        scaled = self.picture("-q", "q.npy", "-k", "k.npy", "--scale", "2")
        self.assertNotEqual(scaled.rows, self.picture("-q", "q.npy", "-k", "k.npy").rows)
        self.picture("-q", "q.npy", "-k", "k.npy", "--scale", "sqrt", "--temperature", "0.5")
        self.fails(2, "--scale is 'cubic'", "heatmap", "-q", "q.npy", "-k", "k.npy", "--scale", "cubic", "-o", "x.png")

    def test_maximum_of_each_panel(self):
        self.write(w_npy=Array((3, 1, 2), (0.5, 0.5, 0.75, 0.25, 0.9, 0.1)))
        self.assertEqual(len(self.cells(self.picture("w.npy", "--max", "all"))), 1)
        boxes = self.cells(self.picture("w.npy", "--max", "panel"))
        self.assertEqual([box[2] // boxes[1][2] for box in boxes], [2, 1, 1])
        self.fails(2, "--max is 'each'; expected panel, all or a positive number", "heatmap", "w.npy", "--max", "each",
                   "-o", "x.png")
        self.fails(2, "--max is '-1'; expected panel, all or a positive number", "heatmap", "w.npy", "--max", "-1",
                   "-o", "x.png")

    def test_what_is_no_weight_is_said(self):
        self.write(w_npy=Array((2, 2, 2), (1, 0, 0.5, 0.5, 0.5, 0.49, 0.7, 0.7)), n_npy=Array((1, 2), (1.5, -0.5)),
                   h_npy=Array((2, 2), (0, 0, 1 / 3, 2 / 3), "<f2"),
                   s_npy=Array((1, 2), (math.inf, 0.5)))
        self.picture("w.npy", says="w.npy is drawn as it is, but these are not the weights of a softmax: it holds 1 of 4 "
                     "rows that do not sum to 1 (the first, head 1, query 1, sums to 1.4)\n")
        self.picture("n.npy", says="it holds 1 negative numbers\n")
        self.picture("s.npy", says="1 NaN or infinities")
        self.picture("h.npy")
        self.picture("w.npy", "--head", "0")

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

    def test_large_matrices_are_reduced(self):
        # In each block of 4 x 4 on the diagonal one key has all the weight: a mean of 1/4, or 1 of what is not hidden.
        n = 256
        values = [0.0] * (n * n)
        for i in range(n):
            values[i * n + i // 4 * 4] = 1.0
        self.write(w_npy=Array((n, n), values))
        for options, bright in ((("--max", "1"), True), (("--reduce", "max"), True),
                                (("--reduce", "mean", "--max", "0.25", "--hidden", "none"), True),
                                (("--reduce", "mean", "--hidden", "none", "--max", "0.3"), False),
                                (("--reduce", "mean", "--max", "1"), True)):
            boxes = self.cells(self.picture("w.npy", "--size", "64", *options))
            if bright:
                x, y = boxes[0][:2]
                self.assertEqual(boxes, [(x + i, y + i, 1, 1) for i in range(64)], options)
            else:
                self.assertEqual(boxes, [], options)

    def test_bars_of_many_keys_by_mean(self):
        self.write(w_npy=Array((1, 2000), [0.001 if i % 2 else 0.0 for i in range(2000)]))
        heights = []
        for options in ((), ("--reduce", "mean", "--hidden", "none"), ("--reduce", "mean")):
            boxes = self.picture("w.npy", "--row", "0", "--max", "0.002", "--size", "200", *options).boxes(BAR)
            self.assertEqual(len({box[3] for box in boxes}), 1)
            heights.append(boxes[0][3])
        self.assertEqual(heights, [140, 70, 140])

    def test_bars(self):
        self.write(w_npy=Array((2, 4), (9, 9, 9, 9, 4 / 7, 2 / 7, 0.0, 1 / 7)))
        picture = self.picture("w.npy", "--row", "1")
        boxes = picture.boxes(BAR)
        self.assertEqual(len(boxes), 3, boxes)
        ((x, y, width, height),) = picture.boxes(HIDDEN)[:1]
        # The highest leaves room below the frame.
        self.assertGreater(min(box[1] for box in boxes), y + 8)
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
        selections = ((), ("--batch", "1"), ("--batch", "1", "--head", "3"), ("--head", "2", "--row", "10"))
        forms = ((), ("--causal", "top-left"), ("--causal", "bottom-right", "--kv-len", "n.npy"),
                 ("--mask", "m.npy", "--temperature", "0.5"),
                 ("--scale", "2", "--kv-start", "s.npy"), ("--isa", "scalar", "--threads", "1"))
        for turn, options in enumerate(forms):
            self.compute(*options)
            for select in in_turns(selections, turn):
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
        self.write(w_npy=Array((1025, 1, 1), [1.0] * 1025), e_npy=Array((3, 0), ()))
        self.fails(2, "1025 heads are too many", "heatmap", "w.npy", "-o", "o.png")
        self.picture("w.npy", "--head", "1024")
        self.fails(1, "nothing to draw", "heatmap", "e.npy", "-o", "o.png")

    def test_labels(self):
        self.write(w_npy=Array((4, 4), identity(4)), l_txt="[CLS]\n▁ein\nWört\nĠслово".encode(), five_txt=b"a\n" * 5,
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
        self.write(r_npy=Array((3, 4), [0.25] * 12))
        self.picture("r.npy", "--row-labels", "three.txt", "--column-labels", "l.txt")
        self.fails(1, "expected 3, one for each query", "heatmap", "r.npy", "--labels", "l.txt", "-o", "o.png")

    def test_formats(self):
        self.write(w_npy=Array((3, 3), identity(3)), l_txt="▁the\nĠΩ\nслово ابج".encode())
        files = {}
        for name in ("o.png", "o.svg", "o.pdf"):
            for _ in range(2):
                self.attn("heatmap", "w.npy", "--labels", "l.txt", "-o", name)
                content = (self.folder / name).read_bytes()
                self.assertEqual(files.setdefault(name, content), content, "the same picture is another file")
        picture = Picture(self.folder / "o.png")
        page = xml.etree.ElementTree.fromstring(files["o.svg"])
        self.assertEqual((page.get("width"), page.get("height")), (f"{picture.width}px", f"{picture.height}px"))
        images = page.findall(".//{http://www.w3.org/2000/svg}image")
        self.assertEqual([image.get("style") for image in images], ["image-rendering:pixelated"] * 2)
        self.assertEqual(int(images[0].get("width")), 3 * 56)
        # The PDF has the characters of the labels, from the tables for copying text out of it.
        box = re.search(rb"/MediaBox \[ 0 0 ([0-9.]+) ([0-9.]+) \]", files["o.pdf"])
        for found, pixels in zip(box.groups(), (picture.width, picture.height)):
            self.assertAlmostEqual(float(found), 0.75 * pixels, delta=0.01)
        streams = b"".join(self.inflated(body) for body in re.findall(rb"stream\n(.*?)\nendstream", files["o.pdf"], re.S))
        characters = {int(code, 16) for code in re.findall(rb"<[0-9a-f]+> <([0-9a-f]{4})>", streams)}
        for character in "▁theĠΩсловоAttention":
            self.assertIn(ord(character), characters, character)
        for name in ("o.jpg", "png", "o", "o.PNG"):
            self.fails(2, f"the picture '{name}' has an unknown format; expected a name that ends in .png, .svg or .pdf",
                       "heatmap", "w.npy", "-o", name)

    def inflated(self, body):
        try:
            return zlib.decompress(body)
        except zlib.error:
            return b""

    def test_characters_that_no_font_has_are_said(self):
        self.write(w_npy=Array((2, 2), identity(2)), l_txt="a\n\U00100001\n".encode())
        self.picture("w.npy", "--labels", "l.txt", says="no installed font has 2 of the characters, the first in "
                     "'\U00100001', and boxes stand for them")

    def test_long_labels_are_cut(self):
        self.write(w_npy=Array((2, 2), identity(2)), long_txt=("ж" * 5000 + "\n") .encode() * 2,
                   short_txt=b"ab\nab\n")
        short, long = (self.picture("w.npy", "--labels", name) for name in ("short.txt", "long.txt"))
        self.assertLess(long.width - short.width, 160)
        self.assertLess(long.height - short.height, 160)
        self.picture("w.npy", "--labels", "long.txt", "--row", "1")

    def test_size_scales_all(self):
        self.write(w_npy=Array((4, 4), [0.25] * 16))
        for options in ((), ("--row", "1")):
            one, two = (self.picture("w.npy", "--size", size, *options) for size in ("720", "1440"))
            self.assertAlmostEqual(one.width * 2, two.width, delta=6)
            self.assertAlmostEqual(one.height * 2, two.height, delta=6)

    def test_grid(self):
        weights = {}
        for layer in range(11):
            values = [0.0] * (3 * 16)
            for head in range(3):
                values[head * 16 + (layer + head) % 16] = 1.0
            weights[f"layer{layer}.weights"] = Array((3, 4, 4), values)
        self.write(m_safetensors={**weights, "embedding": Array((2, 2), (1, 2, 3, 4))})
        boxes = self.cells(self.picture("m.safetensors:layer*.weights", "--grid", "--size", "40"))
        self.assertEqual(len(boxes), 33)
        # Heads stand side by side, and layers one below the other, layer 10 last.
        x0, y0, side, _ = min(boxes, key=lambda box: box[0] + box[1])
        across = min(box[0] for box in boxes if box[0] > x0 + 4 * side and box[1] == y0) - x0 - side
        down = min(box[1] for box in boxes if box[1] > y0 + 3 * side) - y0
        found = {(x, y) for x, y, _, _ in boxes}
        wanted = set()
        for layer in range(11):
            for head in range(3):
                row, column = divmod((layer + head) % 16, 4)
                wanted.add((x0 + head * across + column * side, y0 + layer * down + row * side))
        self.assertEqual(found, wanted)
        bars = self.picture("m.safetensors:layer?.weights", "--grid", "--row", "0").boxes(BAR)
        self.assertEqual(len(bars), sum((layer + head) % 16 < 4 for layer in range(10) for head in range(3)))
        self.assertEqual(len(self.cells(self.picture("m.safetensors:layer*.weights", "--grid", "--head", "2", "--size",
                                                     "40"))), 11)
        self.fails(1, "m.safetensors holds no tensor whose name matches 'encoder*'", "heatmap",
                   "m.safetensors:encoder*", "--grid", "-o", "o.svg")
        self.fails(1, "m.safetensors:layer0.weights has 3 heads, 4 queries and 4 keys; expected 1, 2 and 2 as "
                   "m.safetensors:embedding has, for one grid", "heatmap", "m.safetensors", "--grid", "-o", "o.svg")
        self.write(w_npy=Array((4, 4), identity(4)))
        self.fails(2, "w.npy is one array; expected FILE.safetensors:PATTERN", "heatmap", "w.npy", "--grid", "-o", "o.svg")

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

    def same(self, turn, options, selections=((), ("--batch", "1", "--head", "2"), ("--head", "3", "--row", "31"))):
        common = ("-q", "q.npy", "-k", "k.npy", *map(str, options))
        self.attn("run", *common, "-v", "k.npy", "-o", "o.npy", "--weights", "w.npy")
        for select in in_turns(selections, turn):
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
        forms = (("--softcap", 3, "--head-scale", "1,2,-1,0.5", "--sinks", "1,-inf,0,2"),
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
                 ("--block-pattern", "strided", "--block", 16, "--causal", "top-left", "--alibi"))
        for turn, options in enumerate(forms):
            self.same(turn, options)

    def test_ragged_rows(self):
        self.write(q_npy=normal((1, 4, 100, 8), 1, 2.0), k_npy=normal((1, 2, 110, 8), 2, 2.0),
                   n_npy=Array((4,), (30, 0, 10, 40), "<i8"),
                   t_npy=Array((4, 5), [-1, 0, 0, 1, 1, -1, 0, 1, 2, 3, -1, -1, 0, 1, 1, -1, 0, 0, 0, 2], "<i8"))
        one = ((), ("--head", "3", "--row", "31"), ("--head", "1", "--row", "99"))
        forms = ((), ("--causal", "bottom-right", "--kv-len", "n.npy"), ("--rope", "half", "--alibi"),
                 ("--window", "4,4", "--global", "3,20,70", "--query-offset", "0,3,-2,1"),
                 ("--block-pattern", "longformer", "--block", 16, "--causal", "top-left"),
                 ("--tree", "t.npy", "--rope", "half", "--causal", "bottom-right"),
                 ("--prefix", "5", "--causal", "top-left"))
        for turn, options in enumerate(forms):
            self.same(turn, ("--cu-seqlens", "0,30,30,41,95", "--cu-seqlens-k", "0,33,40,52,107", *options), one)

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
