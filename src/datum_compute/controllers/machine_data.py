"""The data of a Server's ConfigMaps and Secrets, assembled for the start of its machine."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from datum_compute.api.compute.data_sources import VARIABLE_FROM_KEY, KeyToPath
from datum_compute.api.compute.instance import Container
from datum_compute.api.compute.referenced_data import (
    DOCKER_CONFIG_KEY,
    Reference,
    Source,
    of_env_from,
    of_variable,
)
from datum_compute.api.compute.server import Server, ServerSpec
from datum_compute.api.core import Secret
from datum_compute.drivers.driver import DataFile, MachineData, PermanentError
from datum_compute.planning.rollout.referenced_data import (
    ObservedSources,
    SourceObject,
    delivered_sources,
    pinned_versions,
)

Values = Mapping[str, bytes]
_ReadSource = Callable[[Source], Values]  # empty if the source does not exist


def machine_data(
    server: Server, wanted: Sequence[Reference], observed: ObservedSources
) -> MachineData:
    """Return the data as the spec references it.

    The caller has checked that all required sources exist.
    """
    values = {source: _values(obj) for source, obj in delivered_sources(wanted, observed).items()}

    def read(source: Source) -> Values:
        return values.get(source, {})

    spec = server.spec
    pulls = [read(Source("Secret", pull.name)) for pull in spec.image_pull_secrets]
    return MachineData(
        sources=tuple(pinned_versions(wanted, observed)),
        variables={c.name: dict(_variables(c, read)) for c in spec.containers},
        files=dict(_files(spec, read)),
        pull_configs=tuple(p[DOCKER_CONFIG_KEY] for p in pulls if DOCKER_CONFIG_KEY in p),
    )


def _values(obj: SourceObject) -> Values:
    if isinstance(obj, Secret):
        return {key: _decode_base64(value) for key, value in obj.data.items()}
    texts = {key: text.encode() for key, text in obj.data.items()}
    return {**texts, **{key: _decode_base64(value) for key, value in obj.binary_data.items()}}


def _decode_base64(value: str) -> bytes:
    try:
        return base64.b64decode(value)
    except binascii.Error:
        return b""  # the API server rejects such values


def _variables(container: Container, read: _ReadSource) -> Iterator[tuple[str, str]]:
    """Yield the variables of a container: first those of ``envFrom``, then those of ``env``.

    The caller uses the last value of a variable that occurs several times.
    """
    for each in container.env_from:
        for reference in of_env_from("", each):
            for key, value in read(reference.source).items():
                text = _text(value)
                if text is not None and VARIABLE_FROM_KEY.fullmatch(each.prefix + key):
                    yield each.prefix + key, text
    for variable in container.env:
        if variable.value_from is None:
            yield variable.name, variable.value
            continue
        for reference in of_variable("", variable.value_from):
            (key,), values = reference.keys, read(reference.source)
            if key not in values:
                continue
            text = _text(values[key])
            if text is None:  # the message omits the value, which may be secret
                message = f"key {key} of {reference.source} is not text, which a variable requires"
                raise PermanentError(message)
            yield variable.name, text


def _text(value: bytes) -> str | None:
    """Return the value as text; None if a variable cannot contain it."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _files(spec: ServerSpec, read: _ReadSource) -> Iterator[tuple[str, tuple[DataFile, ...]]]:
    for volume in spec.volumes:
        if (files := volume.config_map) is not None:
            values = read(Source("ConfigMap", files.name))
            yield volume.name, tuple(_as_files(values, files.items, files.default_mode))
        elif (secret := volume.secret) is not None:
            values = read(Source("Secret", secret.secret_name))
            yield volume.name, tuple(_as_files(values, secret.items, secret.default_mode))


def _as_files(values: Values, items: Iterable[KeyToPath], default_mode: int) -> Iterator[DataFile]:
    """Yield the selected keys at their paths; without a selection, every key under its name."""
    if selected := list(items):
        for item in selected:
            if item.key in values:
                mode = default_mode if item.mode is None else item.mode
                yield DataFile(item.path, values[item.key], mode)
        return
    for key in sorted(values):
        yield DataFile(key, values[key], default_mode)
