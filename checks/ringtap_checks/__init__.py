# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks of the project that measure nothing: they use the lab's sandbox, and are not installed with it."""
