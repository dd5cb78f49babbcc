# SPDX-License-Identifier: Apache-2.0
"""A small PNG decoder for the tests: 8-bit RGB, every filter, checksums checked."""

import pathlib
import struct
import zlib


class Picture:
    def __init__(self, path):
        data = pathlib.Path(path).read_bytes()
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
            if kind == 2:
                row = bytearray((value + up) & 255 for value, up in zip(row, above))
            elif kind != 0:
                self._add_neighbours(kind, row, above)
            rows.append(row)
            above = row
        return rows

    @staticmethod
    def _add_neighbours(kind, row, above):
        for i, up in enumerate(above):
            left, corner = (row[i - 3], above[i - 3]) if i >= 3 else (0, 0)
            if kind == 1:
                row[i] = (row[i] + left) & 255
            elif kind == 3:
                row[i] = (row[i] + (left + up) // 2) & 255
            else:
                assert kind == 4, f"unknown filter {kind}"
                estimate = left + up - corner
                distances = abs(estimate - left), abs(estimate - up), abs(estimate - corner)
                row[i] = (row[i] + (left, up, corner)[distances.index(min(distances))]) & 255

    def at(self, x, y):
        return tuple(self.rows[y][3 * x:3 * x + 3])

    def boxes(self, colour):
        """The rectangles that connected pixels of a colour fill, as (x, y, width, height), in reading order.

        Pixels that touch but do not fill a rectangle fail the assertion.
        """
        found, open_boxes = [], {}
        for y, row in enumerate(self.rows + [bytearray()]):
            runs = dict(self.runs(row, colour))
            for x, (top, width) in list(open_boxes.items()):
                if runs.get(x) == width:
                    del runs[x]
                    continue
                overlapping = [start for start, length in runs.items() if start < x + width and x < start + length]
                assert not overlapping, f"the area at ({x}, {top}) is no rectangle"
                found.append((x, top, width, y - top))
                del open_boxes[x]
            open_boxes.update({x: (y, width) for x, width in runs.items()})
        return sorted(found, key=lambda box: (box[1], box[0]))

    @staticmethod
    def runs(row, colour):
        """(start, length) of each run of a colour in a row."""
        pixel, at = bytes(colour), 0
        while (at := row.find(pixel, at)) >= 0:
            if at % 3:
                at += 1
                continue
            start = at
            while row[at:at + 3] == pixel:
                at += 3
            yield start // 3, (at - start) // 3

    def area(self, colour):
        """How many pixels have a colour."""
        return sum(length for row in self.rows for _, length in self.runs(row, colour))
