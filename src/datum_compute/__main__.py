"""``python -m datum_compute`` is the command line."""

from __future__ import annotations

import sys

from datum_compute.cli import main

if __name__ == "__main__":
    sys.exit(main())
