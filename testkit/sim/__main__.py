"""``python -m testkit.sim``: the command line of the simulator, see ``run/main.py``."""

import sys

from testkit.sim.run.main import main

if __name__ == "__main__":
    sys.exit(main())
