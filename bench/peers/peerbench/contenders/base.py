# SPDX-License-Identifier: Apache-2.0
"""
What a contender is to the worker: a class that imports its library when it is
made, and turns a case and its arrays into a call that can be repeated.

A library may have more than one way to compute a case (a mask as booleans or
as floats; grouped heads by an option or by repeating). The worker tries all
that `ways` names and keeps the fastest, as an attentive user would.
"""

import os


class Unsupported(Exception):
    """The library has no means to compute the case; the text says why. Not an error."""


class Way:
    """
    One way to compute a case. `run` computes once and returns what `rows`
    needs; conversions into the library's own layout happened before, so that
    nobody is charged for a transpose that its users would not make. `parts`
    maps names to calls of no argument which do a part of the work alone: they
    are timed in the same turns, and a report shows them as shares of the whole.
    `before`, if not None, is called before each sample and is not timed: it puts
    back what calls change.
    """

    def __init__(self, label, run, rows, parts=None, before=None):
        self.label = label
        self.run = run
        self.rows = rows
        self.parts = parts or {}
        self.before = before


def restarted(way, before):
    """
    The way of a case whose calls change what the next one begins with: `before` puts that back, for each sample, and for
    one call more whose rows are compared.
    """

    def rows(_, wanted):
        before()
        return way.rows(way.run(), wanted)

    before()
    return Way(way.label, way.run, rows, way.parts, before)


class Contender:
    """Base of all contenders. `threads` is how many the library may use."""

    def __init__(self, threads):
        self.threads = threads

    def version(self):
        raise NotImplementedError

    def notes(self):
        """A sentence on what was chosen, for the report."""
        return ""

    def check(self, case):
        """Unsupported where the library has no means to compute the case: before anybody reads its arrays."""

    def layout(self, case, arrays):
        """
        q, k and v as the library's users would have them anyway. What this
        takes is neither timed nor counted as memory; it may drop the originals.
        """
        return arrays

    def ways(self, case, arrays):
        """A list of Way for what layout() returned, or Unsupported."""
        raise NotImplementedError


def refuse(condition, reason):
    """Says that the library does not do this case."""
    if condition:
        raise Unsupported(reason)


def use_cores(count):
    """
    Confines this process to `count` of its cores, for libraries that offer no
    other way to say how many threads they may start.
    """
    cores = sorted(os.sched_getaffinity(0))
    if count < len(cores):
        os.sched_setaffinity(0, set(cores[:count]))


def bhtd_rows(output, rows):
    """Rows (b, h, i) of a float32 array that lies as batch, head, token, channel."""
    return output[rows[:, 0], rows[:, 1], rows[:, 2]]


def bthd_rows(output, rows):
    """Rows (b, h, i) of a float32 array that lies as batch, token, head, channel."""
    return output[rows[:, 0], rows[:, 2], rows[:, 1]]
