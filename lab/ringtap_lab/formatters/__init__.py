# SPDX-License-Identifier: MIT OR Apache-2.0
"""Formatters of records: tables, plots, pages and comparisons."""
