# SPDX-License-Identifier: MIT OR Apache-2.0
"""Manager of the lab: inventory, batteries, connections to agents, and the one loop over all cases."""
