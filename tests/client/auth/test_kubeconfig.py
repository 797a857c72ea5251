"""Kubeconfig files are merged, paths are resolved, and errors name the file and the cause."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.client.auth.connection import ExecSignIn, FileSignIn
from datum_compute.client.auth.kubeconfig import (
    Connection,
    KubeconfigError,
    build_client,
    connection_of,
    load_kubeconfig,
)
from datum_compute.client.transport.tls import Certificate
from tests.client.replay_transport import ReplayTransport, json_response

AUTHORITY = {"certificate-authority-data": "YQ=="}
V1 = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "plugin",
    "interactiveMode": "Never",
}
SERVER = "https://127.0.0.1:7443/planes/hub"


def config(**changes: Any) -> dict[str, Any]:
    """One context ``hub``; ``cluster``, ``user`` and ``context`` add to its parts."""
    return {
        "current-context": changes.get("current", "hub"),
        "clusters": [{"name": "c", "cluster": {"server": SERVER, **changes.get("cluster", {})}}],
        "users": [{"name": "u", "user": changes.get("user", {"token": "s3cret"})}],
        "contexts": [
            {
                "name": changes.get("name", "hub"),
                "context": {"cluster": "c", "user": "u", **changes.get("context", {})},
            }
        ],
    }


def write_kubeconfig(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def connect(tmp_path: Path, document: Any, context: str = "") -> Connection:
    return connection_of(
        load_kubeconfig([write_kubeconfig(tmp_path / "config", document)]), context
    )


def test_the_current_context_gives_server_prefix_token_and_namespace(tmp_path: Path) -> None:
    found = connect(tmp_path, config())
    assert found == Connection(
        server="https://127.0.0.1:7443",
        path_prefix="/planes/hub",
        token="s3cret",
        ca_pem=None,
        namespace="default",
        context="hub",
        insecure=False,
    )


def test_the_representation_of_a_connection_contains_no_token(tmp_path: Path) -> None:
    assert "s3cret" not in repr(connect(tmp_path, config()))


def test_the_namespace_of_the_context_is_used(tmp_path: Path) -> None:
    assert connect(tmp_path, config(context={"namespace": "ours"})).namespace == "ours"


def test_certificates_are_verified_unless_the_file_disables_it(tmp_path: Path) -> None:
    assert not connect(tmp_path, config()).insecure
    assert connect(tmp_path, config(cluster={"insecure-skip-tls-verify": True})).insecure


def test_an_inline_authority_overrides_a_file(tmp_path: Path) -> None:
    data = base64.b64encode(b"inline").decode()
    cluster = {"certificate-authority-data": data, "certificate-authority": "absent"}
    assert connect(tmp_path, config(cluster=cluster)).ca_pem == b"inline"


def test_paths_are_relative_to_their_kubeconfig_file(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "ca.crt").write_bytes(b"authority")
    (tmp_path / "deep" / "token").write_text("from-file\n")
    cluster = {"certificate-authority": "ca.crt"}
    document = config(cluster=cluster, user={"tokenFile": "token", "token": "old"})
    found = connect(tmp_path / "deep", document)
    assert (found.ca_pem, found.token) == (b"authority", "from-file")


def test_the_first_file_wins_and_missing_files_are_skipped(
    tmp_path: Path,
) -> None:
    first = write_kubeconfig(
        tmp_path / "a", {**config(user={"token": "first"}), "current-context": ""}
    )
    second = write_kubeconfig(tmp_path / "b", {**config(user={"token": "second"}), "contexts": []})
    third = write_kubeconfig(tmp_path / "c", config(name="other", current="other"))
    merged = load_kubeconfig([tmp_path / "absent", first, second, third])
    assert merged.current_context == "hub"
    assert connection_of(merged).token == "first"
    assert connection_of(merged, "other").token == "first"


def test_a_merged_entry_keeps_the_directory_of_its_own_file(tmp_path: Path) -> None:
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "token").write_text("theirs")
    users = {"users": [{"name": "u", "user": {"tokenFile": "token"}}]}
    files = [
        write_kubeconfig(tmp_path / "users" / "config", users),
        write_kubeconfig(tmp_path / "config", config()),
    ]
    assert connection_of(load_kubeconfig(files)).token == "theirs"


@pytest.mark.parametrize(
    ("document", "context", "expected"),
    [
        ("a: [", "", "is not YAML"),
        ("just text", "", "is not a kubeconfig"),
        ({"contexts": [{"name": "x"}]}, "", "an entry of contexts lacks its name or its context"),
        (config(current=""), "", "has no current-context; name one of: hub"),
        (config(), "cell/dfw", "has no context 'cell/dfw'; it has: hub"),
        (config(context={"cluster": "gone"}), "", "names cluster 'gone', which is not defined"),
        (config(context={"user": ""}), "", "context 'hub' names no user"),
        (config(cluster={"server": ""}), "", "has no server address"),
        (config(cluster={"server": "https://a:b@host"}), "", "may contain only scheme"),
        (config(cluster={"server": "http://example.test"}), "", "clear text"),
        (config(cluster={"certificate-authority-data": "?"}), "", "is not base64"),
        (config(cluster={"certificate-authority": "gone"}), "", "cannot be read: No such file"),
        (config(cluster={"proxy-url": "socks5://p"}), "", "must be an http or https URL"),
        (config(cluster={"proxy-url": "http://[p"}), "", "must be an http or https URL"),
        (
            config(
                cluster={"certificate-authority-data": "YQ==", "insecure-skip-tls-verify": True}
            ),
            "",
            "only one of them is allowed",
        ),
        (config(user={}), "", "the user of context 'hub' has no token"),
        (config(user={"tokenFile": "gone"}), "", "tokenFile of context 'hub'"),
        (config(user={"client-certificate-data": "x"}), "", "client-certificate-data of context"),
        (config(user={"client-certificate-data": "YQ=="}), "", "has no client-key; client-cert"),
        (config(user={"client-key": "gone"}), "", "cannot be read: No such file"),
        (config(user={"username": "u", "password": "p"}), "", "uses username, password"),
        (config(user={"as": "x", "token": "t"}), "", "uses as, which is not supported"),
        (config(user={"exec": {}, "auth-provider": {}}), "", "has no token"),
        (config(user={"exec": {"a": 1}, "auth-provider": {"a": 1}}), "", "has both exec and"),
        (config(user={"exec": "x"}), "", "exec of the user of context 'hub' is not a mapping"),
        (config(user={"exec": {"command": "x"}}), "", "apiVersion must be one of client.auth"),
        (config(user={"exec": {**V1, "command": ""}}), "", "command is missing"),
        (config(user={"exec": {**V1, "interactiveMode": ""}}), "", "interactiveMode must be one"),
        (config(user={"exec": {**V1, "args": "a b"}}), "", "args is not a list"),
        (config(user={"exec": {**V1, "env": [{"value": "x"}]}}), "", "env is not a list of names"),
        (config(user={"auth-provider": {"name": "gcp"}}), "", "auth-provider 'gcp' of context"),
        (config(user={"auth-provider": {"name": "oidc"}}), "", "lacks idp-issuer-url, client-id"),
    ],
)
def test_the_error_of_an_unusable_entry_names_the_file_and_the_cause(
    tmp_path: Path, document: Any, context: str, expected: str
) -> None:
    with pytest.raises(KubeconfigError) as caught:
        connect(tmp_path, document, context)
    assert expected in str(caught.value)
    assert str(tmp_path / "config") in str(caught.value)


@pytest.mark.parametrize("token", ["s3cret\nx-evil: 1", "s3cret \u00e9"])
def test_the_error_of_an_invalid_token_does_not_contain_it(tmp_path: Path, token: str) -> None:
    with pytest.raises(KubeconfigError, match="not allowed in a token") as caught:
        connect(tmp_path, config(user={"token": token}))
    assert "s3cret" not in str(caught.value)


def test_the_error_of_a_file_that_is_not_yaml_does_not_quote_it(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match=r"is not YAML \(line \d\)") as caught:
        connect(tmp_path, "users: [{token: s3cret]")
    assert "s3cret" not in str(caught.value)


def test_proxy_and_server_name_are_read(tmp_path: Path) -> None:
    cluster = {"proxy-url": "http://user:pass@proxy:3128", "tls-server-name": "kube.internal"}
    found = connect(tmp_path, config(cluster=cluster))
    assert (found.proxy, found.tls_server_name) == ("http://user:pass@proxy:3128", "kube.internal")
    assert "pass@" not in repr(found)


def test_certificates_are_inline_or_reloaded_from_files(tmp_path: Path) -> None:
    inline = {"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}
    found = connect(tmp_path, config(user=inline))
    assert found.certificate == Certificate(b"cert", b"key")
    assert found.sign_in is None
    assert "key" not in repr(found.certificate).replace("key_pem", "")
    (tmp_path / "crt").write_bytes(b"cert")
    (tmp_path / "key").write_bytes(b"key")
    found = connect(tmp_path, config(user={"client-certificate": "crt", "client-key": "key"}))
    assert found.certificate == Certificate(b"cert", b"key")
    assert found.sign_in == FileSignIn(None, (tmp_path / "crt", tmp_path / "key"))


def test_the_path_of_a_plugin_is_relative_and_it_gets_its_settings(tmp_path: Path) -> None:
    plugin = {**V1, "command": "./bin/plugin", "args": ["a", 1], "provideClusterInfo": True}
    plugin["env"] = [{"name": "X", "value": "1"}]
    cluster = {
        "certificate-authority-data": "Y2E=",
        "tls-server-name": "kube.internal",
        "extensions": [
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "me"}}
        ],
    }
    found = connect(tmp_path, config(user={"exec": plugin}, cluster=cluster)).sign_in
    assert found == ExecSignIn(
        api_version="client.authentication.k8s.io/v1",
        command=str(tmp_path / "bin" / "plugin"),
        arguments=("a", "1"),
        environment=(("X", "1"),),
        interactive_mode="Never",
        cluster={
            "server": SERVER,
            "certificate-authority-data": "Y2E=",
            "tls-server-name": "kube.internal",
            "config": {"audience": "me"},
        },
    )


def test_a_plugin_without_a_path_is_found_on_the_search_path(tmp_path: Path) -> None:
    beta = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "plugin"}
    found = connect(tmp_path, config(user={"exec": beta})).sign_in
    assert isinstance(found, ExecSignIn)
    assert (found.command, found.interactive_mode, found.cluster) == ("plugin", "IfAvailable", None)


def test_a_token_overrides_a_plugin_as_in_kubectl(tmp_path: Path) -> None:
    found = connect(tmp_path, config(user={"exec": V1, "token": "t"}))
    assert (found.token, found.sign_in) == ("t", None)


async def test_a_client_sends_no_token_if_the_transport_renews_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t")
    transport = ReplayTransport(json_response({"metadata": {"name": "default"}}))
    client = build_client(connect(tmp_path, config(user={"tokenFile": "token"})), transport)
    await client.get(NAMESPACE, Ref("", "default"))
    assert "authorization" not in transport.requests[0].headers


def test_the_error_without_any_file_names_the_expected_paths(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="looked for") as caught:
        load_kubeconfig([tmp_path / "a", tmp_path / "b"])
    assert str(tmp_path / "a") in str(caught.value)


async def test_requests_have_the_prefix_and_the_token(tmp_path: Path) -> None:
    requests: list[Request] = []

    class Recorder:
        async def send(self, request: Request) -> Response:
            requests.append(request)
            return Response(200, b'{"metadata": {"name": "default"}}')

    client = build_client(connect(tmp_path, config()), Recorder())
    assert (await client.get(NAMESPACE, Ref("", "default"))).metadata.name == "default"
    (request,) = requests
    assert request.path == "/planes/hub/api/v1/namespaces/default"
    assert request.headers["authorization"] == "Bearer s3cret"
