# SPDX-License-Identifier: Apache-2.0
"""python -m libattn.onnx report: the onnx package's cases, run with libattn. Exit code 1 if one fails."""
import argparse
import sys

from .report import report


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m libattn.onnx", description="ONNX's operators computed by libattn")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("report", help="the onnx package's own cases of the operators")
    parser.parse_args()
    return 1 if report() else 0


if __name__ == "__main__":
    sys.exit(main())
