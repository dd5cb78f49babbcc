# SPDX-License-Identifier: Apache-2.0
"""One file for each library that takes part; base.py says what they have in common."""
