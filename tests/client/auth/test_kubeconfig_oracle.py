"""We and kubernetes_asyncio read the same settings from a kubeconfig file."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from datum_compute.client.auth.connection import Connection, ExecSignIn
from datum_compute.client.auth.credentials import AuthEnvironment
from datum_compute.client.auth.exec_plugin import ExecPlugin
from datum_compute.client.auth.kubeconfig import connection_of, load_kubeconfig
from datum_compute.client.connect import open_transport
from tests.client.authority import Authority, new_authority

# The other library leaves sockets open and uses deprecated functions.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

ENVIRONMENT = AuthEnvironment({}, False, lambda: 0.0, Random(1))


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority()


def encoded(body: bytes) -> str:
    return base64.b64encode(body).decode()


def plugin(token: str) -> dict[str, Any]:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token},
    }
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", f"print({json.dumps(credential)!r})"],
        "interactiveMode": "Never",
    }


def users(folder: Path, authority: Authority) -> dict[str, dict[str, Any]]:
    pair = authority.client("alice")
    (folder / "token").write_text("from-file")
    (folder / "alice.crt").write_bytes(pair.certificate_pem)
    (folder / "alice.key").write_bytes(pair.key_pem)
    return {
        "token": {"token": "inline"},
        "token file": {"tokenFile": "token"},
        "inline certificate": {
            "client-certificate-data": encoded(pair.certificate_pem),
            "client-key-data": encoded(pair.key_pem),
        },
        "certificate files": {"client-certificate": "alice.crt", "client-key": "alice.key"},
        "plugin": {"exec": plugin("from-plugin")},
    }


def clusters(folder: Path, authority: Authority) -> dict[str, dict[str, Any]]:
    (folder / "ca.crt").write_bytes(authority.ca_pem)
    return {
        "inline authority": {"certificate-authority-data": encoded(authority.ca_pem)},
        "authority file": {"certificate-authority": "ca.crt"},
        "insecure": {"insecure-skip-tls-verify": True},
        "server name": {"tls-server-name": "kube.internal"},
        "proxy": {"proxy-url": "http://proxy.internal:3128"},
    }


def write_kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    server = "https://127.0.0.1:6443/planes/hub"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(document))
    return file


async def read_with_library(file: Path) -> dict[str, Any]:
    """Import the library here: the import takes longer than all of these tests."""
    missing = "kubernetes_asyncio is not installed"
    client = pytest.importorskip("kubernetes_asyncio.client", reason=missing)
    config = pytest.importorskip("kubernetes_asyncio.config.kube_config", reason=missing)
    read = client.Configuration()
    await config.load_kube_config(str(file), client_configuration=read, persist_config=False)
    return {
        "server": read.host,
        "token": (read.api_key.get("BearerToken") or "").removeprefix("Bearer "),
        "ca": contents(read.ssl_ca_cert),
        "certificate": contents(read.cert_file),
        "key": contents(read.key_file),
        "insecure": not read.verify_ssl,
        "proxy": read.proxy or "",
        "server name": read.tls_server_name or "",
    }


def contents(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path else None


async def read_with_client(file: Path) -> dict[str, Any]:
    read = connection_of(load_kubeconfig([file]))
    open_transport(read, ENVIRONMENT)  # accepts every setting
    return {
        "server": read.server + read.path_prefix,
        "token": await token_of(read),
        "ca": read.ca_pem,
        "certificate": read.certificate.certificate_pem if read.certificate else None,
        "key": read.certificate.key_pem if read.certificate else None,
        "insecure": read.insecure,
        "proxy": read.proxy,
        "server name": read.tls_server_name,
    }


async def token_of(connection: Connection) -> str:
    if isinstance(connection.sign_in, ExecSignIn):
        return (await ExecPlugin(connection.sign_in, ENVIRONMENT).obtain())[0].token
    return connection.token


@pytest.mark.parametrize(
    "name",
    ["token", "token file", "inline certificate", "certificate files", "plugin"],
)
async def test_both_libraries_read_the_same_user(
    tmp_path: Path, authority: Authority, name: str
) -> None:
    file = write_kubeconfig(tmp_path, {}, users(tmp_path, authority)[name])
    assert await read_with_client(file) == await read_with_library(file)


@pytest.mark.parametrize(
    "name", ["inline authority", "authority file", "insecure", "server name", "proxy"]
)
async def test_both_libraries_read_the_same_cluster(
    tmp_path: Path, authority: Authority, name: str
) -> None:
    file = write_kubeconfig(tmp_path, clusters(tmp_path, authority)[name], {"token": "inline"})
    assert await read_with_client(file) == await read_with_library(file)
