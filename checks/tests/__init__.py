# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of the checks' pure parts."""
