"""The file of ``compute-manager --server-config``: an object of kind WorkloadOperator.

Every field sets one or two settings of the manager, below flags, environment and ``--config``. A
field that this manager does not support is refused with its position, never ignored.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import click

from datum_compute.api.meta.yaml import YamlDocument
from datum_compute.planning.rollout.referenced_data import SOURCE_BYTES_MAX, TOTAL_BYTES_MAX

API_VERSION, KIND = "apiserver.config.datumapis.com/v1alpha1", "WorkloadOperator"
WEBHOOK_PORT = 9443
# Defaults of the format for the certificate of a port.
_CERTIFICATE_FOLDER = Path(tempfile.gettempdir()) / "k8s-webhook-server" / "serving-certs"
_CERTIFICATE, _KEY = "tls.crt", "tls.key"
_NO_METRICS = "0"

_TLS: dict[str, type] = {"secretRef": dict, "certDir": str, "certName": str, "keyName": str}
_SECTIONS: dict[str, dict[str, type]] = {
    "": {"apiVersion": str, "kind": str},
    "metricsServer": {"bindAddress": str, "secureServing": bool},
    "metricsServer.tls": _TLS,
    "webhookServer": {"host": str, "port": int, "clientCAName": str},
    "webhookServer.tls": _TLS,
    "discovery": {
        "mode": str,
        "clusterName": str,
        "discoveryKubeconfigPath": str,
        "projectKubeconfigPath": str,
        "quotaKubeconfigPath": str,
        "internalServiceDiscovery": bool,
    },
    "featureFlags": {"enableReferencedDataGate": bool},
    "referencedData": {"perObjectLimitBytes": int, "aggregateLimitBytes": int},
}
_TYPES: dict[str, type] = {
    f"{section}.{name}".lstrip("."): kind
    for section, fields in _SECTIONS.items()
    for name, kind in fields.items()
}
_TYPE_NAMES = {str: "a string", bool: "true or false", int: "a number", dict: "a mapping"}
_KUBECONFIGS = {
    "discovery.discoveryKubeconfigPath": "discovery-kubeconfig",
    "discovery.projectKubeconfigPath": "project-kubeconfig",
    "discovery.quotaKubeconfigPath": "quota-kubeconfig",
}
_MODES = ("single", "milo")

Texts = dict[str, tuple[str, str]]  # value and place, by flag


@dataclass(frozen=True, slots=True)
class _Value:
    value: Any
    place: str


@dataclass(frozen=True, slots=True)
class _Config:
    """The values of a file by the path of their field, and the place of each section."""

    file: Path
    values: Mapping[str, _Value]
    sections: Mapping[str, str]

    def get(self, field: str, default: Any = None) -> Any:
        found = self.values.get(field)
        return default if found is None else found.value

    def place(self, field: str) -> str:
        """Return the place of a field, or of the closest section around it."""
        if field in self.values:
            return self.values[field].place
        section = field.rpartition(".")[0]
        return self.sections.get(section) or (self.place(section) if section else str(self.file))

    def refuse(self, field: str, problem: str) -> NoReturn:
        raise click.UsageError(f"{self.place(field)}: {problem}")


def settings_of_config(file: Path, document: YamlDocument) -> Texts:
    """Return text and place of every setting in the file, by flag. Raises UsageError."""
    values: dict[str, _Value] = {}
    sections: dict[str, str] = {}
    for field, value in _fields(file, document, ""):
        if isinstance(value.value, dict) and _TYPES.get(field) is not dict:
            sections[field] = value.place
        else:
            values[field] = value
    config = _Config(file, values, sections)
    _check_object(config)
    _check_unsupported(config)
    return {**_discovery(config), **_webhook(config), **_metrics(config)}


def _fields(file: Path, document: YamlDocument, section: str) -> Iterator[tuple[str, _Value]]:
    """Return the path, value and place of every section and field that is not null."""
    assert isinstance(document.mark.inside, dict)
    for key, inner in document.value.items():
        at = document.mark.inside[key]
        field = f"{section}.{key}".lstrip(".")
        place = f"{file}:{at.line}:{at.column}: {field}"
        kind: type | None = dict if field in _SECTIONS else _TYPES.get(field)
        if kind is None:
            raise click.UsageError(f"{place}: {_describe_unknown(section, field)}")
        if inner is None:
            continue
        if type(inner) is not kind:
            raise click.UsageError(f"{place}: must be {_TYPE_NAMES[kind]}, not {inner!r}")
        yield field, _Value(inner, place)
        if field in _SECTIONS:
            yield from _fields(file, YamlDocument(inner, at), field)


def _describe_unknown(section: str, field: str) -> str:
    known = [name for name in (*_TYPES, *_SECTIONS) if name.rpartition(".")[0] == section and name]
    close = get_close_matches(field, known, n=1)
    return "unknown field" + (f", did you mean {close[0]}?" if close else "")


def _check_object(config: _Config) -> None:
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if field not in config.values:
            raise click.UsageError(f"{config.file}: {field}: is missing, must be {wanted}")
        if config.get(field) != wanted:
            config.refuse(field, f"must be {wanted}, not {config.get(field)}")


def _check_unsupported(config: _Config) -> None:
    if config.get("discovery.internalServiceDiscovery"):
        config.refuse(
            "discovery.internalServiceDiscovery",
            "is not supported: projects are paths of discovery.projectKubeconfigPath",
        )
    for section in ("metricsServer.tls", "webhookServer.tls"):
        if config.get(f"{section}.secretRef"):
            config.refuse(
                f"{section}.secretRef",
                f"is not supported: mount the Secret, and set {section}.certDir",
            )
    if config.get("featureFlags.enableReferencedDataGate") is False:
        config.refuse(
            "featureFlags.enableReferencedDataGate",
            "cannot be false: instances always wait for the ConfigMaps and Secrets of their "
            "template",
        )
    for name, fixed in (
        ("perObjectLimitBytes", SOURCE_BYTES_MAX),
        ("aggregateLimitBytes", TOTAL_BYTES_MAX),
    ):
        if config.get(f"referencedData.{name}", 0) not in (0, fixed):
            config.refuse(f"referencedData.{name}", f"cannot be changed: the limit is {fixed}")


def _discovery(config: _Config) -> Texts:
    mode = config.get("discovery.mode") or _MODES[0]
    if mode not in _MODES:
        config.refuse("discovery.mode", f"must be one of {', '.join(_MODES)}, not {mode}")
    found = {"discovery-mode": (mode, config.place("discovery.mode"))}
    if config.get("discovery.clusterName"):
        place = config.place("discovery.clusterName")
        found["cluster-name"] = (config.get("discovery.clusterName"), place)
    for field, flag in _KUBECONFIGS.items():
        path = config.get(field)
        if path:
            try:
                is_file = Path(path).is_file()
            except OSError as error:
                config.refuse(field, f"{path} cannot be read: {error.strerror}")
            if not is_file:
                config.refuse(field, f"{path} is not a file; is its Secret mounted?")
            found[flag] = (path, config.place(field))
    return found


def _webhook(config: _Config) -> Texts:
    if "webhookServer" not in config.sections:
        return {}
    host, port = config.get("webhookServer.host", ""), config.get("webhookServer.port", 0)
    if not 0 <= port <= 65535:
        config.refuse("webhookServer.port", f"must be a number from 0 to 65535, not {port}")
    folder = Path(config.get("webhookServer.tls.certDir") or _CERTIFICATE_FOLDER)
    place = config.place("webhookServer.host")
    found = {"webhook-address": (_address(host, port or WEBHOOK_PORT), place)}
    found |= _certificate(config, "webhook", folder)
    authority = config.get("webhookServer.clientCAName")
    if authority:
        place = config.place("webhookServer.clientCAName")
        found["webhook-client-authority"] = (str(folder / authority), place)
    return found


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _metrics(config: _Config) -> Texts:
    """Return the settings of the metrics port. Like in the format, it is served over TLS unless
    ``secureServing`` is false, and its certificate is self-signed unless there is a folder."""
    address = config.get("metricsServer.bindAddress") or _NO_METRICS
    if address == _NO_METRICS:
        return {}
    found = {"metrics-address": (address, config.place("metricsServer.bindAddress"))}
    if config.get("metricsServer.secureServing", True):
        found["metrics-tls"] = ("true", config.place("metricsServer.secureServing"))
        folder = config.get("metricsServer.tls.certDir")
        if folder:
            found |= _certificate(config, "metrics", Path(folder))
    return found


def _certificate(config: _Config, port: str, folder: Path) -> Texts:
    section = f"{port}Server.tls"
    return {
        f"{port}-{what}": (
            str(folder / (config.get(f"{section}.{field}") or default)),
            config.place(f"{section}.{field}"),
        )
        for what, field, default in (
            ("certificate", "certName", _CERTIFICATE),
            ("key", "keyName", _KEY),
        )
    }
