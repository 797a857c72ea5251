"""Write deploy/crds: ``python -m hack.write_crds [--check] FOLDER``."""

from __future__ import annotations

import sys

import yaml

from datum_compute.api.kinds import KINDS
from datum_compute.api.meta.codec import copied
from datum_compute.api.schema.derive import crd_manifest
from hack.generated import main

_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # libyaml's writes the same, in a tenth
_HEADER = "# Generated from src/datum_compute/api by `make crds`. Do not edit.\n"


def crd_files() -> dict[str, str]:
    """File name -> content, for every kind that is ours to install."""
    files = {}
    for kind in KINDS:
        if not (kind.built_in or kind.partial):
            text = yaml.dump(copied(crd_manifest(kind)), Dumper=_DUMPER, sort_keys=False, width=100)
            files[f"{kind.group}_{kind.plural}.yaml"] = _HEADER + text
    return files


if __name__ == "__main__":
    sys.exit(main(crd_files(), "crds", owned="*.yaml"))
