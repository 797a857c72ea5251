"""The data of a Server's ConfigMaps and Secrets, put together for the start of its machine."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from datum_compute.api.datasources import VARIABLE_FROM_KEY, KeyToPath
from datum_compute.api.instance import Container
from datum_compute.api.references import (
    DOCKER_CONFIG_KEY,
    Reference,
    Source,
    of_env_from,
    of_variable,
)
from datum_compute.api.secret import Secret
from datum_compute.api.server import Server, ServerSpec
from datum_compute.drivers.driver import DataFile, MachineData, PermanentError
from datum_compute.planning.rollout.referenced_data import (
    ObservedSources,
    SourceObject,
    delivered_sources,
    pinned_versions,
)

Values = Mapping[str, bytes]
_Take = Callable[[Source], Values]  # none of one that is not there


def machine_data(
    server: Server, wanted: Sequence[Reference], observed: ObservedSources
) -> MachineData:
    """What was found, as the spec asks for it. What is required has been seen to be there."""
    values = {source: _values(held) for source, held in delivered_sources(wanted, observed).items()}

    def take(source: Source) -> Values:
        return values.get(source, {})

    spec = server.spec
    pulls = [take(Source("Secret", pull.name)) for pull in spec.image_pull_secrets]
    return MachineData(
        sources=tuple(pinned_versions(wanted, observed)),
        variables={c.name: dict(_variables(c, take)) for c in spec.containers},
        files=dict(_files(spec, take)),
        pull_configs=tuple(p[DOCKER_CONFIG_KEY] for p in pulls if DOCKER_CONFIG_KEY in p),
    )


def _values(held: SourceObject) -> Values:
    if isinstance(held, Secret):
        return {key: _decoded(value) for key, value in held.data.items()}
    texts = {key: text.encode() for key, text in held.data.items()}
    return {**texts, **{key: _decoded(value) for key, value in held.binary_data.items()}}


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value)
    except binascii.Error:
        return b""  # the server lets no such value in


def _variables(container: Container, take: _Take) -> Iterator[tuple[str, str]]:
    """Whole sources first, in their order, then what is said variable by variable: later wins."""
    for each in container.env_from:
        for reference in of_env_from("", each):
            for key, value in take(reference.source).items():
                text = _text(value)
                if text is not None and VARIABLE_FROM_KEY.fullmatch(each.prefix + key):
                    yield each.prefix + key, text
    for variable in container.env:
        if variable.value_from is None:
            yield variable.name, variable.value
            continue
        for reference in of_variable("", variable.value_from):
            (key,), values = reference.keys, take(reference.source)
            if key not in values:
                continue
            text = _text(values[key])
            if text is None:  # the value itself is not repeated: it may be secret
                why = f"key {key} of {reference.source} is not text: a variable cannot hold it"
                raise PermanentError(why)
            yield variable.name, text


def _text(value: bytes) -> str | None:
    """What a variable can hold of it; None if it is no text."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _files(spec: ServerSpec, take: _Take) -> Iterator[tuple[str, tuple[DataFile, ...]]]:
    for volume in spec.volumes:
        if (files := volume.config_map) is not None:
            values = take(Source("ConfigMap", files.name))
            yield volume.name, tuple(_as_files(values, files.items, files.default_mode))
        elif (secret := volume.secret) is not None:
            values = take(Source("Secret", secret.secret_name))
            yield volume.name, tuple(_as_files(values, secret.items, secret.default_mode))


def _as_files(values: Values, items: Iterable[KeyToPath], default_mode: int) -> Iterator[DataFile]:
    """The keys that are named, under their paths; without any, every key under its own name."""
    if named := list(items):
        for item in named:
            if item.key in values:
                mode = default_mode if item.mode is None else item.mode
                yield DataFile(item.path, values[item.key], mode)
        return
    for key in sorted(values):
        yield DataFile(key, values[key], default_mode)
