# SPDX-License-Identifier: Apache-2.0
"""attn pattern: the numbers it prints, and the blocks in its pictures."""

import unittest

from png import Picture
from support import CommandTest

INK, WHITE = (34, 44, 74), (255, 255, 255)


class Pattern(CommandTest):
    first_cells = {}

    def numbers(self, *arguments):
        """Rows, columns, listed blocks and density as they are printed."""
        result = self.attn("pattern", *arguments)
        self.assertEqual(result.stderr, "")
        fields = dict(line.rsplit(None, 1) for line in result.stdout.splitlines())
        self.assertEqual(list(fields), ["block rows", "block columns", "listed blocks", "density"])
        rows, columns, listed = (int(fields[name]) for name in list(fields)[:3])
        self.assertAlmostEqual(float(fields["density"]), listed / (rows * columns), delta=1e-6)
        return rows, columns, listed

    def first_cell(self, rows, columns, size):
        """Where cells are and how large, by a picture whose first block touches no other dark one."""
        if (rows, columns) not in self.first_cells:
            self.attn("pattern", "longformer", *size, "--window", 0, "--global", 0, "-o", "d.png")
            cell = Picture(self.folder / "d.png").boxes(INK)[0]
            self.assertGreaterEqual(min(cell[2:]), 16)
            self.first_cells[rows, columns] = cell
        return self.first_cells[rows, columns]

    def drawn(self, rows, columns, *arguments):
        """The picture as lines of text, '#' being a dark cell."""
        size = ("--tq", 16 * rows, "--tk", 16 * columns, "--block", 16)
        x, y, width, height = self.first_cell(rows, columns, size)
        numbers = self.numbers(*arguments, *size, "--output", "o.png")
        picture = Picture(self.folder / "o.png")
        lines = []
        for r in range(rows):
            line = ""
            for c in range(columns):
                # All of a cell but the frame around the picture has one colour.
                colours = {picture.at(x + c * width + i, y + r * height + j)
                           for i in (1, width // 2, width - 2) for j in (1, height // 2, height - 2)}
                self.assertIn(colours, ({INK}, {WHITE}), f"cell ({r}, {c})")
                line += "#" if colours == {INK} else "."
            lines.append(line)
        self.assertEqual(numbers, (rows, columns, "".join(lines).count("#")))
        self.assertGreater(picture.width, x + columns * width)
        self.assertGreater(picture.height, y + rows * height)
        return lines

    def test_longformer(self):
        self.assertEqual(self.drawn(6, 6, "longformer", "--window", 1, "--global", 1),
                         ["######", "###...", "####..", "#.###.", "#..###", "#...##"])
        self.assertEqual(self.drawn(6, 6, "longformer", "--window", 0, "--global", 2, "--causal"),
                         ["#.....", "##....", "###...", "##.#..", "##..#.", "##...#"])
        self.assertEqual(self.drawn(3, 5, "longformer"), ["#####", "###..", "####."])
        self.assertEqual(self.drawn(5, 2, "longformer", "--global", 0), ["##", "##", ".#", "..", ".."])

    def test_bigbird(self):
        picture = ["########", "####...#", "####.#.#", "######..", "######..", "##.####.", "#..#####", "#..#.###"]
        options = ("--window", 1, "--global", 1, "--random", 2, "--seed", 1)
        self.assertEqual(self.drawn(8, 8, "bigbird", *options), picture)
        self.assertEqual(self.drawn(8, 8, "bigbird", *options, "--heads", 4), picture)
        self.assertNotEqual(self.drawn(8, 8, "bigbird", *options, "--heads", 4, "--head", 3), picture)
        self.assertEqual(self.drawn(8, 8, "bigbird", "--window", 0, "--random", 2, "--seed", 2024, "--heads", 4,
                                    "--head", 3, "--causal"),
                         ["#.......", "##......", "###.....", "####....", "#.###...", "#.#.##..", "##...##.", "###....#"])

    def test_strided(self):
        self.assertEqual(self.drawn(7, 7, "strided", "--stride", 3),
                         ["####..#", "#####..", "######.", "#######", ".######", "..#####", "#..####"])
        self.assertEqual(self.drawn(7, 7, "strided", "--causal"),
                         ["#......", "##.....", "###....", "####...", ".####..", "..####.", "#..####"])

    def test_numbers_alone(self):
        self.assertEqual(self.numbers("longformer", "--tokens", 1000), (16, 16, 16 + 15 + 15 + 2 * 14))
        self.assertEqual(self.numbers("strided", "--tokens", 64, "--block", 64), (1, 1, 1))
        self.assertEqual(self.numbers("bigbird", "--tokens", 2048, "--block", 128, "--window", 0, "--global", 0),
                         (16, 16, 16 * 4))
        self.assertEqual(self.content(), {})

    def test_many_blocks_are_shaded(self):
        # 4096 x 4096 blocks, of which every cell of the picture stands for several.
        self.numbers("longformer", "--tokens", 65536, "--block", 16, "--window", 50, "--global", 0, "-o", "o.png",
                     "--reduce", "mean")
        picture = Picture(self.folder / "o.png")
        middle = picture.rows[picture.height // 2]
        colours = {tuple(middle[i:i + 3]) for i in range(0, len(middle), 3)}
        self.assertIn(INK, colours)
        self.assertIn(WHITE, colours)
        ends = zip(INK, WHITE)
        self.assertTrue(any(all(low < value < high for value, (low, high) in zip(colour, ends)) for colour in colours))

    def test_a_thin_line_of_many_blocks_stays_visible(self):
        # 15000 block columns, of which each row lists one.
        self.numbers("longformer", "--tokens", 240000, "--block", 16, "--window", 0, "--global", 0, "--size", 300, "-o",
                     "o.png")
        boxes = Picture(self.folder / "o.png").boxes(INK)
        x, y = boxes[0][:2]
        self.assertEqual(boxes, [(x + i, y + i, 1, 1) for i in range(300)])

    def test_options_of_other_patterns_are_refused(self):
        for pattern, option, owner in (("longformer", "--random", "bigbird"), ("longformer", "--seed", "bigbird"),
                                       ("longformer", "--heads", "bigbird"), ("longformer", "--head", "bigbird"),
                                       ("longformer", "--stride", "strided"), ("bigbird", "--stride", "strided"),
                                       ("strided", "--window", "longformer and bigbird"),
                                       ("strided", "--global", "longformer and bigbird"),
                                       ("strided", "--random", "bigbird"), ("strided", "--seed", "bigbird"),
                                       ("strided", "--heads", "bigbird"), ("strided", "--head", "bigbird")):
            self.fails(2, f"option {option} is for {owner}, not for {pattern}", "pattern", pattern, "--tokens", 64,
                       option, 1)

    def test_usage(self):
        good = ("pattern", "bigbird", "--tokens", 640)
        self.fails(2, "no pattern is named", "pattern")
        self.fails(1, "attn: --tokens or --tq is 1099511627776, which makes 17179869184 block rows", "pattern",
                   "longformer", "--tokens", 1 << 40)
        self.fails(1, "attn: --tokens or --tk is 1099511627776, which makes 17179869184 block columns", "pattern",
                   "longformer", "--tq", 64, "--tk", 1 << 40)
        self.fails(2, "unknown pattern 'random'", "pattern", "random", "--tokens", 64)
        self.fails(2, "unexpected argument 'strided'", *good, "strided")
        self.fails(2, "unknown option '--dense'", *good, "--dense")
        self.fails(2, "takes no value", *good, "--causal=yes")
        self.fails(2, "--tokens N is missing", "pattern", "bigbird")
        self.fails(2, "option --tk N is missing", "pattern", "bigbird", "--tq", 64)
        self.fails(2, "option --tq N is missing", "pattern", "bigbird", "--tk", 64)
        self.fails(2, "--tokens stands for both", *good, "--tq", 64)
        self.fails(2, "--block is '24'; expected a multiple of 16", *good, "--block", 24)
        self.fails(2, "--head is 2; expected 0 to 1", *good, "--heads", 2, "--head", 2)
        self.fails(2, "--head is 1; expected 0 to 0", *good, "--head", 1)
        for option, value in (("--tokens", 0), ("--block", 0), ("--block", "x"), ("--window", -1), ("--global", "1.5"),
                              ("--random", ""), ("--seed", -1), ("--heads", 0), ("--head", "99999999999999999999")):
            line = ["pattern", "bigbird", option, value] + (["--tokens", 64] if option != "--tokens" else [])
            self.fails(2, f"{option} is '{value}'", *line)
        self.fails(2, "--stride is '0'", "pattern", "strided", "--tokens", 64, "--stride", 0)
        self.fails(2, "unknown format", *good, "-o", "o.jpg")
        self.fails(1, "none/o.png: cannot be written", *good, "-o", "none/o.png")

    def test_too_large(self):
        self.fails(1, "tq is 9223372036854775807", "pattern", "longformer", "--tokens", 2**63 - 1)
        self.fails(1, "2^63 bytes", "pattern", "bigbird", "--tokens", 640, "--heads", 2**63 - 1)


if __name__ == "__main__":
    unittest.main()
