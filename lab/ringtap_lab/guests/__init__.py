# SPDX-License-Identifier: MIT OR Apache-2.0
"""Virtual machines in which contenders run: a server that hosts them, and a client that runs a program in one."""
