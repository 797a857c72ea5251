"""Where the gateway is found on a plane, and what it says of instances that nobody runs."""

from __future__ import annotations

from urllib.parse import quote

ROOT = "/gateway/v1alpha"
# In the answer of a gateway that has nothing of an instance, as opposed to no gateway at all.
NOT_HERE = "no cell runs it, or has run it within a day"
# Of a simulated machine, which only pretends.
NO_PROCESS = "the driver of its cell runs no processes"

# Where images are fetched by nodes that nobody can ask.
NO_REGISTRY = "the cluster of its cell fetches images itself; nothing here can ask a registry"

# Where planes are API servers of others, managers serve the gateway. That of a cell is named by an
# annotation of its Cluster (a URL, below which ROOT is), and who signed its certificate by a key of
# the Secret that is for the cell; that of a project by a ConfigMap which everybody there may read.
GATEWAY = "compute.datumapis.com/gateway"
GATEWAY_AUTHORITY = "gatewayCaBundle"
NOTICE_NAMESPACE, NOTICE_NAME = "kube-public", "compute-gateway"
NOTICE_URL, NOTICE_AUTHORITY = "url", "ca.crt"


def instance_path(namespace: str, name: str, what: str) -> str:
    return f"{ROOT}/namespaces/{quote(namespace, safe='')}/instances/{quote(name, safe='')}/{what}"


def drivers_path(namespace: str) -> str:
    """Where it is asked what runs the instances of the cells."""
    return f"{ROOT}/namespaces/{quote(namespace, safe='')}/drivers"


def images_path(namespace: str) -> str:
    """Where it is asked whether an image can be had."""
    return f"{ROOT}/namespaces/{quote(namespace, safe='')}/images"
