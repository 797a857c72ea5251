"""The connection of a program that runs in a cluster, from what the cluster puts into it.

The directory is that of the service account; host and port come from the environment, which the
caller reads (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT).
"""

from __future__ import annotations

from pathlib import Path

from datum_compute.client.auth.connection import Connection, FileSignIn, checked_token
from datum_compute.client.auth.kubeconfig_files import KubeconfigError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def in_cluster_connection(directory: Path, host: str, port: str) -> Connection:
    address = f"[{host}]" if ":" in host else host
    token_file = directory / "token"
    token = checked_token(_read(token_file).decode("latin-1"), f"the token in {token_file}")
    namespace_file = directory / "namespace"
    namespace = _read(namespace_file).decode().strip() if namespace_file.is_file() else ""
    return Connection(
        server=f"https://{address}:{port}",
        path_prefix="",
        token=token,
        ca_pem=_read(directory / "ca.crt"),
        namespace=namespace or "default",
        context="in-cluster",
        sign_in=FileSignIn(token=token_file),
    )


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise KubeconfigError(
            f"the service account of this pod is incomplete: {file} cannot be read: "
            f"{error.strerror}"
        ) from error
