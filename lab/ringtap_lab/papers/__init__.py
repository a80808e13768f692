# SPDX-License-Identifier: MIT OR Apache-2.0
"""Published figures beside ours: data of each paper, models of its engines, and the formatter of its page."""
