"""The data of a machine follows its spec and is never part of a repr."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from datum_compute.api.compute.referenced_data import Source, references_of_server
from datum_compute.api.compute.server import Server
from datum_compute.api.core import ConfigMap, Secret
from datum_compute.api.meta.codec import from_json
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.controllers.machine_data import machine_data
from datum_compute.drivers.driver import DataFile, MachineData, PermanentError
from datum_compute.planning.rollout.referenced_data import ObservedSources

WEB = ConfigMap(
    metadata=ObjectMeta(name="web", resource_version="4"),
    data={"COLOUR": "blue", "9lives": "cat", "app.conf": "x=1\n"},
    binary_data={"logo": base64.b64encode(b"\x89\xff").decode()},
)
DB = Secret(
    metadata=ObjectMeta(name="db", resource_version="5"),
    data={"password": base64.b64encode(b"hunter2").decode()},
)
HELD = ObservedSources({Source("ConfigMap", "web"): WEB, Source("Secret", "db"): DB})


def delivered(container: dict[str, Any], **spec: Any) -> MachineData:
    containers = [{"name": "app", "image": "web:1", **container}]
    document = {"instanceType": "d1", "templateHash": "abc", "containers": containers, **spec}
    server = from_json({"metadata": {"name": "web-0"}, "spec": document}, Server)
    return machine_data(server, references_of_server(server.spec), HELD)


def test_variables_come_from_literal_values_and_from_keys() -> None:
    env = [
        {"name": "PLAIN", "value": "as it is"},
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "web", "key": "COLOUR"}}},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}},
        {
            "name": "ABSENT",
            "valueFrom": {"secretKeyRef": {"name": "none", "key": "x", "optional": True}},
        },
    ]
    data = delivered({"env": env})
    assert data.variables == {"app": {"PLAIN": "as it is", "COLOUR": "blue", "PASSWORD": "hunter2"}}
    assert [(p.name, p.resource_version) for p in data.sources] == [("web", "4"), ("db", "5")]


def test_a_later_source_overrides_an_earlier_one_and_a_variable_overrides_both() -> None:
    data = delivered(
        {
            "envFrom": [
                {"secretRef": {"name": "db"}},
                {"prefix": "P_", "secretRef": {"name": "db"}},
            ],
            "env": [{"name": "password", "value": "literal"}],
        }
    )
    assert data.variables == {"app": {"password": "literal", "P_password": "hunter2"}}


def test_keys_and_values_that_cannot_be_variables_are_left_out_of_whole_sources() -> None:
    data = delivered({"envFrom": [{"configMapRef": {"name": "web"}}]})
    assert data.variables == {"app": {"COLOUR": "blue", "app.conf": "x=1\n"}}


def test_binary_data_is_rejected_as_a_variable_without_showing_it() -> None:
    env = [{"name": "LOGO", "valueFrom": {"configMapKeyRef": {"name": "web", "key": "logo"}}}]
    with pytest.raises(PermanentError, match="key logo of ConfigMap/web is not text"):
        delivered({"env": env})


def test_volumes_contain_all_keys_or_the_selected_ones() -> None:
    items = [{"key": "password", "path": "db/pass", "mode": 0o400}]
    data = delivered(
        {},
        volumes=[
            {"name": "all", "configMap": {"name": "web", "defaultMode": 0o440}},
            {"name": "one", "secret": {"secretName": "db", "items": items}},
        ],
    )
    assert data.files["one"] == (DataFile("db/pass", b"hunter2", 0o400),)
    assert [(f.path, f.mode) for f in data.files["all"]] == [
        ("9lives", 0o440),
        ("COLOUR", 0o440),
        ("app.conf", 0o440),
        ("logo", 0o440),
    ]


def test_the_data_of_a_machine_is_not_shown() -> None:
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}}]
    volumes = [{"name": "one", "secret": {"secretName": "db"}}]
    data = delivered({"env": env}, volumes=volumes)
    assert "hunter2" not in repr(data)
    assert "hunter2" not in repr(HELD)
