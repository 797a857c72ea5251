"""Build the programs of Kubernetes and Karmada for tests: ``python -m hack.build_assets``.

Builds the missing programs, and prints their folders. The first build takes about 25 minutes on two
cores. ``--found kubernetes karmada`` builds nothing, and fails if one of the two is missing.
"""

from __future__ import annotations

import os
import sys

from hack.gobuild import CannotBuild
from hack.karmada_assets import built_karmada, found_karmada
from hack.kube_assets import built_assets, found_assets

FOUND = {"kubernetes": found_assets, "karmada": found_karmada}


def main() -> int:
    if sys.argv[1:2] == ["--found"]:
        return 0 if all(FOUND[name](os.environ) is not None for name in sys.argv[2:]) else 1
    try:
        for build in (built_assets, built_karmada):
            sys.stdout.write(f"{build(os.environ)}\n")
            sys.stdout.flush()
    except CannotBuild as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
