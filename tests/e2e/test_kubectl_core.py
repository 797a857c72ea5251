"""The small core kinds, made by the commands kubectl has for each."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from testkit.processes.kubectl import Kubectl

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]


def test_namespaces_come_and_go(in_platform: Kubectl) -> None:
    assert in_platform("create", "namespace", "core-ns") == "namespace/core-ns created\n"
    assert "already exists" in in_platform.refused("create", "namespace", "core-ns")
    namespace = in_platform.json("get", "ns", "core-ns")
    assert namespace["status"]["phase"] == "Active"
    namespace["metadata"]["labels"]["tier"] = "gold"
    in_platform("replace", "-f", "-", stdin=json.dumps(namespace))
    assert "core-ns" in in_platform("get", "ns", "-l", "tier=gold")
    assert "deleted" in in_platform("delete", "namespace", "core-ns")
    assert "not found" in in_platform.refused("get", "namespace", "core-ns")
    assert "may not be deleted" in in_platform.refused("delete", "namespace", "default")
    assert "Invalid value" in in_platform.refused("create", "namespace", "Not_A_Name")


def test_config_maps_are_made_of_words_and_files(space: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "settings.ini").write_text("[main]\nsize=3\n")
    (tmp_path / "picture.bin").write_bytes(b"\xff\x00")
    sources = ("--from-literal=color=blue", f"--from-file={tmp_path}")
    space("create", "configmap", "c", *sources)
    found = space.json("get", "cm", "c")
    assert found["data"] == {"color": "blue", "settings.ini": "[main]\nsize=3\n"}
    assert base64.b64decode(found["binaryData"]["picture.bin"]) == b"\xff\x00"
    found["data"] = {"color": "red"}
    space("replace", "-f", "-", stdin=json.dumps(found))
    assert space("get", "cm", "c", "-o=jsonpath={.data.color}") == "red"
    space("delete", "cm", "c")
    assert "not found" in space.refused("get", "cm", "c")


def test_secrets_are_made_and_keep_their_values_to_themselves(space: Kubectl) -> None:
    space("create", "secret", "generic", "s", "--from-literal=password=hunter2")
    table = space("get", "secrets")
    assert ("Opaque" in table, "hunter2" in table) == (True, False)
    data = space.json("get", "secret", "s")["data"]
    assert base64.b64decode(data["password"]) == b"hunter2"
    login = ("--docker-server=example.com", "--docker-username=a", "--docker-password=b")
    space("create", "secret", "docker-registry", "pull", *login)
    kind = "jsonpath={.type}"
    assert space("get", "secret", "pull", "-o", kind) == "kubernetes.io/dockerconfigjson"
    error = space.refused("patch", "secret", "s", "-p", '{"data":{"password":"not base64!"}}')
    assert "data" in error
    space("delete", "secret", "s", "pull")


def test_accounts_are_made_and_come_with_every_namespace(space: Kubectl) -> None:
    space("wait", "serviceaccount/default", "--for=create", "--timeout=20s")
    space("create", "serviceaccount", "robot")
    names = space("get", "sa", "-o", "jsonpath={.items[*].metadata.name}").split()
    assert names == ["default", "robot"]
    space("delete", "sa", "robot")


def test_an_immutable_config_map_stays_as_it_is(space: Kubectl) -> None:
    space("create", "configmap", "c", "--from-literal=color=blue")
    space("patch", "cm", "c", "--type=merge", "-p", '{"immutable":true}')
    error = space.refused("patch", "cm", "c", "--type=merge", "-p", '{"data":{"color":"red"}}')
    assert "immutable" in error


def test_a_kustomization_is_applied_and_deleted(space: Kubectl, tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(
        "configMapGenerator:\n- name: made\n  literals: [color=blue]\n"
        "generatorOptions: {disableNameSuffixHash: true}\n"
    )
    assert "configmap/made created" in space("apply", "-k", str(tmp_path))
    space("delete", "-k", str(tmp_path))


def test_commands_for_kinds_that_are_not_served_fail_with_a_reason(in_project: Kubectl) -> None:
    error = in_project.refused("create", "deployment", "web", "--image=web:1")
    assert "could not find the requested resource" in error
    assert "no matches for kind" in in_project.refused("run", "web", "--image=web:1")
