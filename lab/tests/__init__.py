# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of the lab's pure parts; run by `python3 -m unittest discover -s lab/tests -t lab`."""
