"""All references of a template to ConfigMaps and Secrets are found, with their paths."""

from __future__ import annotations

from typing import Any

from datum_compute.api.compute.instance import InstanceTemplate
from datum_compute.api.compute.referenced_data import Reference, Source, references, sources
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import from_json, to_json
from datum_compute.api.schema.derive import structural_schema
from testkit.builders import a_template

FIRST = "spec.runtime.sandbox.containers[0]"


def a_template_with(container: dict[str, Any], **spec: Any) -> InstanceTemplate:
    document = to_json(a_template())
    document["spec"]["runtime"]["sandbox"]["containers"][0] |= container
    pulls = spec.pop("imagePullSecrets", [])
    document["spec"]["runtime"]["sandbox"]["imagePullSecrets"] = pulls
    return from_json({**document, "spec": {**document["spec"], **spec}}, InstanceTemplate)


def test_a_template_without_data_has_no_references() -> None:
    assert references(a_template()) == ()


def test_references_of_variables_contain_the_key() -> None:
    env = [
        {"name": "PLAIN", "value": "x"},
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "web", "key": "a"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "db", "key": "b", "optional": True}}},
    ]
    assert references(a_template_with({"env": env})) == (
        Reference("ConfigMap", "web", f"{FIRST}.env[1].valueFrom.configMapKeyRef", keys=("a",)),
        Reference("Secret", "db", f"{FIRST}.env[2].valueFrom.secretKeyRef", True, ("b",)),
    )


def test_references_to_whole_sources_contain_no_key() -> None:
    both = [{"configMapRef": {"name": "web"}}, {"secretRef": {"name": "db", "optional": True}}]
    assert references(a_template_with({"envFrom": both})) == (
        Reference("ConfigMap", "web", f"{FIRST}.envFrom[0].configMapRef"),
        Reference("Secret", "db", f"{FIRST}.envFrom[1].secretRef", optional=True),
    )


def test_references_of_volumes_and_pull_secrets_contain_their_keys() -> None:
    items = [{"key": "tls.crt", "path": "crt"}]
    template = a_template_with(
        {},
        volumes=[
            {"name": "a", "configMap": {"name": "web"}},
            {"name": "b", "secret": {"secretName": "tls", "items": items}},
        ],
        imagePullSecrets=[{"name": "registry"}],
    )
    pull = "spec.runtime.sandbox.imagePullSecrets[0]"
    assert references(template) == (
        Reference("Secret", "registry", pull, keys=(".dockerconfigjson",)),
        Reference("ConfigMap", "web", "spec.volumes[0].configMap"),
        Reference("Secret", "tls", "spec.volumes[1].secret", keys=("tls.crt",)),
    )


def test_a_source_with_two_references_is_listed_once() -> None:
    both = [{"configMapRef": {"name": "web"}}, {"secretRef": {"name": "web"}}]
    found = references(a_template_with({"envFrom": [*both, *both]}))
    assert sources(found) == (Source("ConfigMap", "web"), Source("Secret", "web"))


def test_every_schema_field_that_refers_to_a_source_is_read() -> None:
    """A new field of the schema that refers to a ConfigMap or Secret must be added here."""
    template = structural_schema(WORKLOAD)["properties"]["spec"]["properties"]["template"]
    known = {"configMapKeyRef", "secretKeyRef", "configMapRef", "secretRef", "configMap", "secret"}
    assert set(_reference_fields(template)) == {*known, "imagePullSecrets"}


def _reference_fields(schema: dict[str, Any]) -> list[str]:
    inner = [*schema.get("properties", {}).items(), ("", schema.get("items", {}))]
    named = [n for n, _ in inner if "configmap" in n.lower() or "secret" in n.lower()]
    below = [name for _, part in inner if part for name in _reference_fields(part)]
    return [n for n in [*named, *below] if n != "secretName"]
