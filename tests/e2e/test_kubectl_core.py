"""Namespaces, ConfigMaps, Secrets and ServiceAccounts with kubectl."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from testkit.processes.kubectl import Kubectl

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]


def test_namespaces_are_created_labelled_and_deleted(in_platform: Kubectl) -> None:
    assert in_platform("create", "namespace", "core-ns") == "namespace/core-ns created\n"
    assert "already exists" in in_platform.error_of("create", "namespace", "core-ns")
    namespace = in_platform.json("get", "ns", "core-ns")
    assert namespace["status"]["phase"] == "Active"
    namespace["metadata"]["labels"]["tier"] = "gold"
    in_platform("replace", "-f", "-", stdin=json.dumps(namespace))
    assert "core-ns" in in_platform("get", "ns", "-l", "tier=gold")
    assert "deleted" in in_platform("delete", "namespace", "core-ns")
    assert "not found" in in_platform.error_of("get", "namespace", "core-ns")
    assert "may not be deleted" in in_platform.error_of("delete", "namespace", "default")
    assert "Invalid value" in in_platform.error_of("create", "namespace", "Not_A_Name")


def test_config_maps_are_created_from_literals_and_files(
    in_namespace: Kubectl, tmp_path: Path
) -> None:
    (tmp_path / "settings.ini").write_text("[main]\nsize=3\n")
    (tmp_path / "picture.bin").write_bytes(b"\xff\x00")
    sources = ("--from-literal=color=blue", f"--from-file={tmp_path}")
    in_namespace("create", "configmap", "c", *sources)
    found = in_namespace.json("get", "cm", "c")
    assert found["data"] == {"color": "blue", "settings.ini": "[main]\nsize=3\n"}
    assert base64.b64decode(found["binaryData"]["picture.bin"]) == b"\xff\x00"
    found["data"] = {"color": "red"}
    in_namespace("replace", "-f", "-", stdin=json.dumps(found))
    assert in_namespace("get", "cm", "c", "-o=jsonpath={.data.color}") == "red"
    in_namespace("delete", "cm", "c")
    assert "not found" in in_namespace.error_of("get", "cm", "c")


def test_secrets_are_created_and_tables_hide_their_values(in_namespace: Kubectl) -> None:
    in_namespace("create", "secret", "generic", "s", "--from-literal=password=hunter2")
    table = in_namespace("get", "secrets")
    assert ("Opaque" in table, "hunter2" in table) == (True, False)
    data = in_namespace.json("get", "secret", "s")["data"]
    assert base64.b64decode(data["password"]) == b"hunter2"
    login = ("--docker-server=example.com", "--docker-username=a", "--docker-password=b")
    in_namespace("create", "secret", "docker-registry", "pull", *login)
    kind = "jsonpath={.type}"
    assert in_namespace("get", "secret", "pull", "-o", kind) == "kubernetes.io/dockerconfigjson"
    error = in_namespace.error_of(
        "patch", "secret", "s", "-p", '{"data":{"password":"not base64!"}}'
    )
    assert "data" in error
    in_namespace("delete", "secret", "s", "pull")


def test_service_accounts_are_created_and_each_namespace_has_a_default_one(
    in_namespace: Kubectl,
) -> None:
    in_namespace("wait", "serviceaccount/default", "--for=create", "--timeout=20s")
    in_namespace("create", "serviceaccount", "robot")
    names = in_namespace("get", "sa", "-o", "jsonpath={.items[*].metadata.name}").split()
    assert names == ["default", "robot"]
    in_namespace("delete", "sa", "robot")


def test_an_immutable_config_map_rejects_changes(in_namespace: Kubectl) -> None:
    in_namespace("create", "configmap", "c", "--from-literal=color=blue")
    in_namespace("patch", "cm", "c", "--type=merge", "-p", '{"immutable":true}')
    error = in_namespace.error_of(
        "patch", "cm", "c", "--type=merge", "-p", '{"data":{"color":"red"}}'
    )
    assert "immutable" in error


def test_a_kustomization_is_applied_and_deleted(in_namespace: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        "configMapGenerator:\n- name: made\n  literals: [color=blue]\n"
        "generatorOptions: {disableNameSuffixHash: true}\n"
    )
    assert "configmap/made created" in in_namespace("apply", "-k", str(tmp_path))
    in_namespace("delete", "-k", str(tmp_path))


def test_commands_for_kinds_that_are_not_served_report_it(in_project: Kubectl) -> None:
    error = in_project.error_of("create", "deployment", "web", "--image=web:1")
    assert "could not find the requested resource" in error
    assert "no matches for kind" in in_project.error_of("run", "web", "--image=web:1")
