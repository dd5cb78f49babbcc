# SPDX-License-Identifier: Apache-2.0
"""A small PNG decoder for the tests: 8-bit RGB, every filter, checksums checked."""

import struct
import zlib


class Picture:
    def __init__(self, path):
        data = open(path, "rb").read()
        assert data[:8] == b"\x89PNG\r\n\x1a\n", "not a PNG file"
        at, stream = 8, b""
        while at < len(data):
            (length,), kind = struct.unpack(">I", data[at:at + 4]), data[at + 4:at + 8]
            body = data[at + 8:at + 8 + length]
            (checksum,) = struct.unpack(">I", data[at + 8 + length:at + 12 + length])
            assert checksum == zlib.crc32(kind + body), f"the checksum of {kind} is wrong"
            if kind == b"IHDR":
                self.width, self.height, *rest = struct.unpack(">IIBBBBB", body)
                assert rest == [8, 2, 0, 0, 0], f"not 8-bit RGB: {rest}"
            elif kind == b"IDAT":
                stream += body
            at += 12 + length
        assert kind == b"IEND", "the last chunk is not IEND"
        self.rows = self._unfilter(zlib.decompress(stream))

    def _unfilter(self, raw):
        stride = self.width * 3
        assert len(raw) == self.height * (stride + 1)
        rows, above = [], bytearray(stride)
        for y in range(self.height):
            kind = raw[y * (stride + 1)]
            row = bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
            for i in range(stride):
                left = row[i - 3] if i >= 3 else 0
                up = above[i]
                corner = above[i - 3] if i >= 3 else 0
                if kind == 1:
                    row[i] = (row[i] + left) & 255
                elif kind == 2:
                    row[i] = (row[i] + up) & 255
                elif kind == 3:
                    row[i] = (row[i] + (left + up) // 2) & 255
                elif kind == 4:
                    estimate = left + up - corner
                    distances = abs(estimate - left), abs(estimate - up), abs(estimate - corner)
                    row[i] = (row[i] + (left, up, corner)[distances.index(min(distances))]) & 255
                else:
                    assert kind == 0, f"unknown filter {kind}"
            rows.append(row)
            above = row
        return rows

    def at(self, x, y):
        return tuple(self.rows[y][3 * x:3 * x + 3])

    def boxes(self, colour):
        """The rectangles that connected pixels of a colour fill, as (x, y, width, height), in reading order.

        Pixels that touch but do not fill a rectangle fail the assertion.
        """
        found = []
        taken = set()
        for y in range(self.height):
            for x in range(self.width):
                if (x, y) in taken or self.at(x, y) != colour:
                    continue
                width = height = 1
                while x + width < self.width and self.at(x + width, y) == colour:
                    width += 1
                while y + height < self.height and self.at(x, y + height) == colour:
                    height += 1
                for j in range(y, y + height):
                    for i in range(x, x + width):
                        assert self.at(i, j) == colour, f"the area at ({x}, {y}) is no rectangle"
                        taken.add((i, j))
                found.append((x, y, width, height))
        return found
