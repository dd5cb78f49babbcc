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
        rows, above = [], bytes(stride)
        known = {}  # most rows of a picture are those above them
        for y in range(self.height):
            filtered = raw[y * (stride + 1):(y + 1) * (stride + 1)]
            if (filtered, above) not in known:
                known[filtered, above] = self._row(filtered[0], filtered[1:], above)
            above = known[filtered, above]
            rows.append(above)
        return rows

    @staticmethod
    def _row(kind, filtered, above):
        """A row of pixels, of which each number has its neighbours' taken away: https://www.w3.org/TR/png/#9Filters."""
        if kind == 0:
            return filtered
        if kind == 2:
            return bytes((value + up) & 255 for value, up in zip(filtered, above))
        assert kind in (1, 3, 4), f"unknown filter {kind}"
        row = bytearray(filtered)
        for channel in range(3):
            left = corner = 0
            for i in range(channel, len(row), 3):
                up = above[i]
                if kind == 1:
                    guess = left
                elif kind == 3:
                    guess = (left + up) // 2
                elif left == corner:
                    guess = up
                elif up == corner:
                    guess = left
                else:
                    of_left, of_up, of_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
                    guess = left if of_left <= of_up and of_left <= of_corner else up if of_up <= of_corner else corner
                left = row[i] = (row[i] + guess) & 255
                corner = up
        return bytes(row)

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
