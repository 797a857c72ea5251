"""Write deploy/federation: ``python -m hack.write_federation [--check] FOLDER``.

What the API servers of a federation need, beside the CRDs, before managers can work on them
(docs/guides/kubernetes.md): for each role of plane its accounts and what it starts with, and the
definitions of Karmada's kinds for a hub where ``--enable-propagator`` stands in for Karmada.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from datum_compute.api.kinds import KINDS, NAMESPACE
from datum_compute.api.planes import ROLES, cell_plane, project_plane
from datum_compute.api.quota import QUOTA_NAMESPACE
from datum_compute.api.schema.derive import crd_manifest
from datum_compute.planes.bootstrap import built_in_sizes
from datum_compute.planes.catalogue import KindAndObject, platform_objects, project_objects
from hack.account_rules import account_rules
from hack.generated import main
from hack.write_single_cluster import account, documents, made, without_services

# Examples: a city is a Location, and a LocationBinding in every project that may use it.
_CITIES = [cell_plane("dfw"), cell_plane("ord")]
_NAMESPACES = {"project": (QUOTA_NAMESPACE,), "hub": ("karmada-system", "karmada-cluster")}


def federation_files() -> dict[str, str]:
    """File name -> content."""
    files = {f"{role}-accounts.yaml": documents(_accounts(role)) for role in ROLES}
    files |= {
        f"{role}-catalogue.yaml": documents(made(objects)) for role, objects in _catalogue().items()
    }
    files["hub-definitions.yaml"] = documents(_definitions_of_karmada())
    return files


def _accounts(role: str) -> Iterable[dict[str, Any]]:
    for name in _NAMESPACES.get(role, ()):
        head = {"apiVersion": NAMESPACE.api_version, "kind": NAMESPACE.kind}
        yield {**head, "metadata": {"name": name}}
    for name, rules in account_rules(role).items():
        # One API server may be more than one plane: the roles for those must not be one object.
        yield from account(name, rules, f"{name}-{role}")


def _catalogue() -> dict[str, list[KindAndObject]]:
    sizes: list[KindAndObject] = list(built_in_sizes())
    return {
        "platform": [*sizes, *without_services(platform_objects(_CITIES))],
        "project": [*sizes, *project_objects(project_plane("default"), _CITIES)],
        "cell": sizes,
    }


def _definitions_of_karmada() -> Iterable[dict[str, Any]]:
    return (crd_manifest(kind) for kind in KINDS if kind.partial)


if __name__ == "__main__":
    sys.exit(main(federation_files(), "crds", owned="*.yaml"))
