# SPDX-License-Identifier: MIT OR Apache-2.0
"""The testing architecture of Ringtap: manager, agents, daemons and formatters."""

__version__ = "0.1.0"
