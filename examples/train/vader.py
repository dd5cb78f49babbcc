# SPDX-License-Identifier: Apache-2.0
"""Sentences that people have rated: the four sets of Hutto & Gilbert's VADER paper (ICWSM 2014).

The source package vaderSentiment 3.3.2 (MIT licence) ships them in an archive
of its own, which a wheel built from it does not have: sentences from tweets,
film reviews, product reviews and newspaper editorials, each with the mean of at
least 15 people's ratings from -4 (extremely negative) to 4. The tweets are
without names and addresses.
"""

import io
import tarfile
from pathlib import Path

import common

PACKAGE = "vaderSentiment-3.3.2"
ARCHIVE = f"{PACKAGE}/additional_resources/hutto_ICWSM_2014.tar.gz"
SETS = ("tweets", "movieReviewSnippets", "amazonReviewSnippets", "nytEditorialSnippets")


def add_argument(parser):
    parser.add_argument("--data", type=Path, required=True, metavar="FILE",
                        help=f"the source package {PACKAGE}.tar.gz, as pip download gives it")


def read_texts(path, names=SETS):
    """Every text of the sets, on one line, with its mean rating."""
    rated = []
    try:
        with tarfile.open(path, "r:gz") as package:
            inner = io.BytesIO(package.extractfile(ARCHIVE).read())
        with tarfile.open(fileobj=inner, mode="r:gz") as archive:
            for name in names:
                content = archive.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt").read()
                for line in content.decode("utf-8-sig").removesuffix("\n").split("\n"):
                    _, rating, text = line.split("\t", 2)
                    rated.append((" ".join(text.split()), float(rating)))
    except (OSError, EOFError, KeyError, ValueError, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        common.fail(f"{path} could not be read as the source package of {PACKAGE}: {reason}")
    return rated
