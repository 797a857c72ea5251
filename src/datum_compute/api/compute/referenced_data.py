"""References of templates to ConfigMaps and Secrets.

There is one ``Reference`` for each place in a template, in the order of the document. Paths are
relative to the template. Access checks, scheduling gates and the delivery of data all use this
list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from datum_compute.api.compute.data_sources import (
    EnvFromSource,
    EnvVarSource,
    KeySelector,
    PullSecret,
    SourceKind,
    Volume,
    WholeSource,
)
from datum_compute.api.compute.instance import Container, InstanceTemplate, TemplateSpec
from datum_compute.api.compute.server import ServerSpec

DOCKER_CONFIG_KEY = ".dockerconfigjson"


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """A ConfigMap or Secret in the namespace of the object that refers to it."""

    kind: SourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Reference:
    """A place in a template that refers to a source. Without ``keys`` it refers to all keys."""

    kind: SourceKind
    name: str
    field: str
    optional: bool = False
    keys: tuple[str, ...] = ()

    @property
    def source(self) -> Source:
        return Source(self.kind, self.name)


def references(template: InstanceTemplate) -> tuple[Reference, ...]:
    return references_of(template.spec)


def references_of(spec: TemplateSpec) -> tuple[Reference, ...]:
    """Return the references of the spec of a template or an instance."""
    sandbox = spec.runtime.sandbox
    return (
        *_of_containers("spec.runtime.sandbox.containers", sandbox.containers),
        *_of_pulls("spec.runtime.sandbox.imagePullSecrets", sandbox.image_pull_secrets),
        *_of_volumes("spec.volumes", spec.volumes),
    )


def references_of_server(spec: ServerSpec) -> tuple[Reference, ...]:
    return (
        *_of_containers("spec.containers", spec.containers),
        *_of_pulls("spec.imagePullSecrets", spec.image_pull_secrets),
        *_of_volumes("spec.volumes", spec.volumes),
    )


def sources(found: Sequence[Reference]) -> tuple[Source, ...]:
    """Return the sources of the references, each once and sorted."""
    return tuple(sorted({reference.source for reference in found}))


def _of_containers(path: str, containers: Sequence[Container]) -> Iterator[Reference]:
    for index, container in enumerate(containers):
        for position, variable in enumerate(container.env):
            if variable.value_from is not None:
                yield from of_variable(
                    f"{path}[{index}].env[{position}].valueFrom", variable.value_from
                )
        for position, source in enumerate(container.env_from):
            yield from of_env_from(f"{path}[{index}].envFrom[{position}]", source)


def of_variable(path: str, source: EnvVarSource) -> Iterator[Reference]:
    """Yield the key that an environment variable refers to."""
    if source.config_map_key_ref is not None:
        yield _of_key("ConfigMap", f"{path}.configMapKeyRef", source.config_map_key_ref)
    if source.secret_key_ref is not None:
        yield _of_key("Secret", f"{path}.secretKeyRef", source.secret_key_ref)


def _of_key(kind: SourceKind, path: str, selector: KeySelector) -> Reference:
    return Reference(kind, selector.name, path, selector.optional, (selector.key,))


def of_env_from(path: str, source: EnvFromSource) -> Iterator[Reference]:
    """Yield the source of several environment variables."""
    if source.config_map_ref is not None:
        yield _of_whole("ConfigMap", f"{path}.configMapRef", source.config_map_ref)
    if source.secret_ref is not None:
        yield _of_whole("Secret", f"{path}.secretRef", source.secret_ref)


def _of_whole(kind: SourceKind, path: str, source: WholeSource) -> Reference:
    return Reference(kind, source.name, path, source.optional)


def _of_pulls(path: str, pulls: Sequence[PullSecret]) -> Iterator[Reference]:
    for index, pull in enumerate(pulls):
        yield Reference("Secret", pull.name, f"{path}[{index}]", keys=(DOCKER_CONFIG_KEY,))


def _of_volumes(path: str, volumes: Sequence[Volume]) -> Iterator[Reference]:
    for index, volume in enumerate(volumes):
        if (files := volume.config_map) is not None:
            keys = tuple(item.key for item in files.items)
            field = f"{path}[{index}].configMap"
            yield Reference("ConfigMap", files.name, field, files.optional, keys)
        if (secret := volume.secret) is not None:
            keys = tuple(item.key for item in secret.items)
            field = f"{path}[{index}].secret"
            yield Reference("Secret", secret.secret_name, field, secret.optional, keys)
