# SPDX-License-Identifier: MIT OR Apache-2.0
"""Agent on one machine of the lab: the manager sends this package over the connection; standard library only."""
