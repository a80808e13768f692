# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measurements that are programs: each moves into a battery, and then leaves this folder."""
