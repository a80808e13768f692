# SPDX-License-Identifier: MIT OR Apache-2.0
"""`python3 -m ringtap_lab` is the command `ringtap-lab`."""

import sys

from ringtap_lab.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
