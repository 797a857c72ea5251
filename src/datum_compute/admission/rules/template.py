"""Rules for the template of a Workload: variables, volumes, mounts, networks and amounts.

Messages contain names and fields, but no values of variables: those can be secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from datum_compute.api.compute.data_sources import VARIABLE_FROM_KEY
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.names import (
    NUL,
    NUL_PROBLEM,
    dns_label_problem,
    mount_path_problem,
    normalize_mount_path,
)
from datum_compute.api.meta.quantity import mebibytes, millicores

_TEMPLATE = "spec.template.spec"
INTERFACES_FIELD = f"{_TEMPLATE}.networkInterfaces"
_RUNTIME = f"{_TEMPLATE}.runtime"
_VARIABLE_NAME = re.compile("[!-<>-~]+")
_AMOUNTS = {"cpu": millicores, "memory": mebibytes}

# The path of a field, and its value.
Part = tuple[str, JsonObject]


@dataclass(frozen=True, slots=True)
class TemplateParts:
    """The spec of a template, and its parts with the paths of their fields."""

    spec: JsonObject
    containers: list[Part]
    volumes: list[Part]
    interfaces: list[Part]


def parts_of(workload: JsonObject) -> TemplateParts:
    spec = workload["spec"]["template"]["spec"]
    containers = spec["runtime"]["sandbox"]["containers"]
    return TemplateParts(
        spec,
        [(f"{_RUNTIME}.sandbox.containers[{n}]", part) for n, part in enumerate(containers)],
        [(f"{_TEMPLATE}.volumes[{n}]", part) for n, part in enumerate(spec.get("volumes", ()))],
        interfaces(workload),
    )


def interfaces(workload: JsonObject) -> list[Part]:
    """Return each network interface with the path of its field."""
    found = workload["spec"]["template"]["spec"].get("networkInterfaces", ())
    return [(f"{INTERFACES_FIELD}[{index}]", interface) for index, interface in enumerate(found)]


PartsRule = Callable[[TemplateParts, TemplateParts | None], Iterable[Cause]]


def template_rule(
    *rules: PartsRule,
) -> Callable[[JsonObject, JsonObject | None], Iterable[Cause]]:
    """Return a rule that finds the parts of the new and the old template once, and runs the given
    rules on them."""

    def rule(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
        parts, old_parts = parts_of(new), parts_of(old) if old is not None else None
        for parts_rule in rules:
            yield from parts_rule(parts, old_parts)

    return rule


def check_variable_sources(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    for path, container in new.containers:
        for index, variable in enumerate(container.get("env", ())):
            where, source = f"{path}.env[{index}]", variable.get("valueFrom")
            if source is not None:
                yield from check_exactly_one(
                    f"{where}.valueFrom", source, "configMapKeyRef", "secretKeyRef"
                )
                if variable.get("value"):
                    why = "may not be specified when value is not empty; keep one of them"
                    yield Cause.invalid(f"{where}.valueFrom", why)
        for index, source in enumerate(container.get("envFrom", ())):
            yield from check_exactly_one(
                f"{path}.envFrom[{index}]", source, "configMapRef", "secretRef"
            )


def check_variable_names(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    """Check new names and prefixes.

    A process cannot be started with other names, and with another prefix no key of a source would
    become a variable.
    """
    known = {name for _, name in _variable_names(old)} if old else set()
    for path, name in _variable_names(new):
        if name not in known and not _VARIABLE_NAME.fullmatch(name):
            why = "must be printable ASCII characters without = and spaces, such as LOG_LEVEL"
            yield Cause.invalid(path, f"{name!a}: {why}")
    known = {prefix for _, prefix in _prefixes(old)} if old else set()
    for path, prefix in _prefixes(new):
        if prefix not in known and not VARIABLE_FROM_KEY.fullmatch(prefix):
            why = "must be letters, digits, '-', '_' and '.', and begin with no digit, such as DB_"
            yield Cause.invalid(path, f"{prefix!a}: {why}")


def check_volume_sources(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    for path, volume in new.volumes:
        yield from check_exactly_one(path, volume, "configMap", "secret")
        for field in ("configMap", "secret"):
            yield from _file_paths(f"{path}.{field}", volume.get(field) or {})


def check_volume_attachments(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    """Each volume is attached to a container, and each attachment refers to a volume."""
    named = {volume["name"]: path for path, volume in new.volumes}
    attached = set()
    for path, container in new.containers:
        for index, attachment in enumerate(container.get("volumeAttachments", ())):
            name, where = attachment["name"], f"{path}.volumeAttachments[{index}]"
            attached.add(name)
            if name not in named:
                yield Cause.not_found(f"{where}.name", name, f"must be in {_TEMPLATE}.volumes")
    for name, path in named.items():
        if name not in attached:
            why = f'volume "{name}" is not attached to any container; attach it or remove it'
            yield Cause.invalid(path, why)


def check_no_nul_bytes(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    """Reject NUL bytes in new texts. ``api/meta/names.py`` lists the fields."""
    found = [(path, text) for path, text in _process_texts(new) if NUL in text]
    known = {text for _, text in _process_texts(old)} if found and old else set()
    for path, text in found:
        if text not in known:
            yield Cause.invalid(path, NUL_PROBLEM)


def check_mount_paths(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    """Reject new mounts on system directories, and two mounts on one path."""
    mounts = list(_mount_paths(new))
    if not mounts:
        return
    known = {path for _, path in _mount_paths(old)} if old else set()
    for field, path in mounts:
        if path not in known and (problem := mount_path_problem(path)):
            yield Cause.invalid(field, f"{path[:120]!a}: {problem}")
    for where, container in new.containers:
        seen: set[str] = set()
        for index, attachment in enumerate(container.get("volumeAttachments", ())):
            path = normalize_mount_path(attachment["mountPath"])
            if path in seen and attachment["mountPath"] not in known:
                field = f"{where}.volumeAttachments[{index}].mountPath"
                yield Cause.duplicate(field, path)
            seen.add(path)


def check_network_names(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    """Check the names of new networks: they become parts of other names."""
    before = [interface["network"] for _, interface in old.interfaces] if old else []
    for path, interface in new.interfaces:
        network = interface["network"]
        if network in before:
            continue
        for field in ("name", "namespace"):
            value = network.get(field, "")
            if value and (problem := dns_label_problem(value)):
                yield Cause.invalid(f"{path}.network.{field}", problem, value)


def check_requests_complete(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    """Requests contain both cpu and memory, or neither."""
    requests = _requests(new)
    if len(requests) == 1 and (old is None or requests != _requests(old)):
        (missing,) = set(_AMOUNTS) - set(requests)
        why = "give cpu and memory, or none of them to have those of the instance type"
        path = f"{_RUNTIME}.resources.requests.{missing}"
        yield Cause.required(path, why)


def check_requests_within_limits(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    for path, container in new.containers:
        resources = container.get("resources", {})
        limits, requests = resources.get("limits", {}), resources.get("requests", {})
        for name, amount in _AMOUNTS.items():
            if (
                name in limits
                and name in requests
                and amount(requests[name]) > amount(limits[name])
            ):
                why = f"must be no more than the limit, {limits[name]}"
                yield Cause.invalid(f"{path}.resources.requests.{name}", why, requests[name])


def _variable_names(parts: TemplateParts) -> Iterator[tuple[str, str]]:
    for path, container in parts.containers:
        for index, variable in enumerate(container.get("env", ())):
            yield f"{path}.env[{index}].name", variable["name"]


def _mount_paths(parts: TemplateParts) -> Iterator[tuple[str, str]]:
    for path, container in parts.containers:
        for index, attachment in enumerate(container.get("volumeAttachments", ())):
            yield f"{path}.volumeAttachments[{index}].mountPath", attachment["mountPath"]


def _process_texts(parts: TemplateParts) -> Iterator[tuple[str, str]]:
    for path, container in parts.containers:
        commands = [("command", container.get("command", ())), ("args", container.get("args", ()))]
        for probe in ("readinessProbe", "livenessProbe"):
            action = (container.get(probe) or {}).get("exec") or {}
            commands.append((f"{probe}.exec.command", action.get("command", ())))
        for field, texts in commands:
            for index, text in enumerate(texts):
                yield f"{path}.{field}[{index}]", text
        for index, variable in enumerate(container.get("env", ())):
            yield f"{path}.env[{index}].value", variable.get("value", "")
    for path, volume in parts.volumes:
        for field in ("configMap", "secret"):
            items = (volume.get(field) or {}).get("items", ())
            for index, item in enumerate(items):
                yield f"{path}.{field}.items[{index}].path", item["path"]


def _prefixes(parts: TemplateParts) -> Iterator[tuple[str, str]]:
    for path, container in parts.containers:
        for index, source in enumerate(container.get("envFrom", ())):
            if source.get("prefix"):
                yield f"{path}.envFrom[{index}].prefix", source["prefix"]


def _requests(parts: TemplateParts) -> JsonObject:
    found: JsonObject = parts.spec["runtime"].get("resources", {}).get("requests", {})
    return {name: amount for name, amount in found.items() if amount is not None}


def _file_paths(path: str, source: JsonObject) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, item in enumerate(source.get("items", ())):
        where, file = f"{path}.items[{index}].path", item["path"]
        if ".." in file.split("/"):
            yield Cause.invalid(where, 'must not contain ".."')
        if file in seen:
            yield Cause.duplicate(where, file)
        seen.add(file)


def check_exactly_one(path: str, holder: JsonObject, *fields: str) -> Iterator[Cause]:
    given = [field for field in fields if holder.get(field) is not None]
    if not given:
        message = f"exactly one of {' and '.join(fields)} must be given"
        yield Cause.required(path, message)
    for field in given[1:]:
        message = f"may not be given beside {given[0]}; keep one of them"
        yield Cause.forbidden(f"{path}.{field}", message)
