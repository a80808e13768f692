# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a link needs: queues, cores, pool, memory and disk, computed from measured costs."""
