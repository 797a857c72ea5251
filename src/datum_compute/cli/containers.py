"""The containers of a workload or an instance, shown; values of variables only when asked for."""

from __future__ import annotations

from datum_compute.api.compute.instance import Container, EnvVar, TemplateSpec
from datum_compute.api.meta.codec import JsonObject
from datum_compute.cli.errors import MissingError
from datum_compute.cli.guesses import named_hint
from datum_compute.cli.output import Output, one_line

MASKED = "***"


def check_container(spec: TemplateSpec, name: str | None) -> None:
    """Refuse a container that there is not, with a guess."""
    names = [container.name for container in spec.runtime.sandbox.containers]
    if name is not None and name not in names:
        raise MissingError(f"There is no container {name!r}.", named_hint(name, names))


def container_documents(spec: TemplateSpec, show_values: bool) -> list[JsonObject]:
    return [
        {
            "name": container.name,
            "image": container.image,
            "command": [*container.command],
            "args": [*container.args],
            "ports": [
                {"name": p.name, "port": p.port, "protocol": p.protocol} for p in container.ports
            ],
            "env": [{"name": e.name, "value": _value(e, show_values)} for e in container.env],
        }
        for container in spec.runtime.sandbox.containers
    ]


def print_containers(output: Output, spec: TemplateSpec, show_values: bool) -> None:
    for container in spec.runtime.sandbox.containers:
        output.data("")
        output.data(f"Container {container.name}: {one_line(container.image)}")
        for title, text in _lines(container, show_values):
            if text:
                output.data(f"  {title + ':':<9} {one_line(text)}")


def _lines(container: Container, show_values: bool) -> list[tuple[str, str]]:
    ports = (f"{p.port}/{p.protocol} ({p.name})" for p in container.ports)
    variables = (f"{e.name}={_value(e, show_values)}" for e in container.env)
    return [
        ("Command", " ".join((*container.command, *container.args))),
        ("Ports", ", ".join(ports)),
        ("Env", ", ".join(variables)),
    ]


def _value(variable: EnvVar, show_values: bool) -> str:
    source = variable.value_from
    if source is None:
        return variable.value if show_values else MASKED
    if source.config_map_key_ref is not None:
        return f"(ConfigMap {source.config_map_key_ref.name})"
    if source.secret_key_ref is not None:
        return f"(Secret {source.secret_key_ref.name})"
    return MASKED
