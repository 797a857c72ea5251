"""Sources that can be delivered are pinned by version. Others are reported without their values."""

from __future__ import annotations

import base64

import msgspec

from datum_compute.api.compute.data_sources import EnvFromSource, WholeSource
from datum_compute.api.compute.referenced_data import Reference, Source
from datum_compute.api.conditions import FALSE, TRUE, Reason
from datum_compute.api.core import ConfigMap, Secret
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.planning.rollout.gates import initial_gates
from datum_compute.planning.rollout.referenced_data import (
    SOURCE_BYTES_MAX,
    ObservedSources,
    check_sources,
    pinned_versions,
    size_bytes,
)
from testkit.builders import a_deployment

WEB, DB = Source("ConfigMap", "web"), Source("Secret", "db")
WHOLE = Reference("ConfigMap", "web", "spec.volumes[0].configMap")
KEY = Reference("Secret", "db", "env[0]", keys=("password",))
PASSWORD = base64.b64encode(b"hunter2").decode()


def a_config_map(size: int = 1) -> ConfigMap:
    return ConfigMap(
        metadata=ObjectMeta(name="web", namespace="default", resource_version="12"),
        data={"a": "x" * size},
    )


def a_secret(**data: str) -> Secret:
    return Secret(
        metadata=ObjectMeta(name="db", namespace="default", resource_version="13"), data=data
    )


def test_present_sources_are_pinned_by_version() -> None:
    observed = ObservedSources({WEB: a_config_map(), DB: a_secret(password=PASSWORD)})
    value = check_sources([WHOLE, KEY], observed)
    assert (value.status, value.reason) == (TRUE, Reason.READY)
    pins = [
        (p.kind, p.name, p.resource_version) for p in pinned_versions([WHOLE, KEY, KEY], observed)
    ]
    assert pins == [("ConfigMap", "web", "12"), ("Secret", "db", "13")]


def test_every_missing_source_is_named_with_its_field() -> None:
    value = check_sources([WHOLE, KEY], ObservedSources())
    assert (value.status, value.reason) == (FALSE, Reason.SOURCE_NOT_FOUND)
    assert value.message == (
        "ConfigMap/web does not exist (referenced by spec.volumes[0].configMap); "
        "Secret/db does not exist (referenced by env[0])"
    )


def test_a_missing_key_is_named_without_values() -> None:
    value = check_sources([KEY], ObservedSources({DB: a_secret(user=PASSWORD)}))
    assert (value.status, value.reason) == (FALSE, Reason.SOURCE_NOT_FOUND)
    assert "Secret/db has no key password" in value.message
    assert PASSWORD not in value.message


def test_an_unreadable_source_is_reported_before_a_missing_one() -> None:
    value = check_sources([WHOLE, KEY], ObservedSources(denied=frozenset({DB})))
    assert value.reason == Reason.SOURCE_UNAUTHORIZED
    assert "ConfigMap/web does not exist" in value.message


def test_a_source_that_is_too_large_is_reported_with_its_size() -> None:
    observed = ObservedSources({WEB: a_config_map(SOURCE_BYTES_MAX + 1)})
    value = check_sources([WHOLE], observed)
    assert value.reason == Reason.SOURCE_TOO_LARGE
    assert f"{SOURCE_BYTES_MAX + 1} bytes" in value.message


def test_sources_that_are_too_large_in_total_are_reported() -> None:
    names = [f"web-{number}" for number in range(5)]
    wanted = [Reference("ConfigMap", name, name) for name in names]
    held = {Source("ConfigMap", name): a_config_map(SOURCE_BYTES_MAX) for name in names}
    assert check_sources(wanted[:4], ObservedSources(held)).status == TRUE
    assert check_sources(wanted, ObservedSources(held)).reason == Reason.SOURCE_TOO_LARGE


def test_optional_sources_that_cannot_be_delivered_are_left_out() -> None:
    optional = [optional_form(WHOLE), optional_form(KEY)]
    assert check_sources(optional, ObservedSources(denied=frozenset({DB}))).status == TRUE
    large = ObservedSources({WEB: a_config_map(SOURCE_BYTES_MAX + 1)})
    assert check_sources(optional, large).status == TRUE
    assert pinned_versions(optional, large) == []


def optional_form(reference: Reference) -> Reference:
    return Reference(reference.kind, reference.name, reference.field, True, reference.keys)


def test_sizes_are_those_of_the_delivered_values() -> None:
    assert size_bytes(a_secret(password=PASSWORD)) == len(b"hunter2")
    assert size_bytes(a_config_map(5)) == 5


def test_only_templates_with_references_get_the_data_gate() -> None:
    plain = a_deployment()
    assert [gate.name for gate in initial_gates(plain)] == ["Network", "Quota"]
    container = msgspec.structs.replace(
        plain.spec.template.spec.runtime.sandbox.containers[0],
        env_from=[EnvFromSource(config_map_ref=WholeSource(name="web"))],
    )
    sandbox = msgspec.structs.replace(
        plain.spec.template.spec.runtime.sandbox, containers=[container]
    )
    runtime = msgspec.structs.replace(plain.spec.template.spec.runtime, sandbox=sandbox)
    spec = msgspec.structs.replace(plain.spec.template.spec, runtime=runtime)
    template = msgspec.structs.replace(plain.spec.template, spec=spec)
    using = msgspec.structs.replace(
        plain, spec=msgspec.structs.replace(plain.spec, template=template)
    )
    assert [gate.name for gate in initial_gates(using)] == ["Network", "Quota", "ReferencedData"]
