# SPDX-License-Identifier: Apache-2.0
"""Side-by-side benchmark of libattn and other libraries' attention. See ../README.md."""
