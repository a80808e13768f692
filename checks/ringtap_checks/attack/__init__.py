# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attackers of a hub, written from the documents alone."""
