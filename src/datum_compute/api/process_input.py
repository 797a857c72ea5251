"""Rules for text that becomes part of a process or of a path.

The kernel accepts no NUL byte in an argument, a variable or a path. Engines cut the text at the NUL
byte, or fail with an error that does not name the field. These fields can carry one:

| field of a user | becomes | NUL is rejected by |
|---|---|---|
| container command, args | argument | rule ``texts_have_no_nul`` |
| probe exec.command | argument | rule ``texts_have_no_nul`` |
| container env name | variable | rule ``variables_can_be_set`` (printable ASCII) |
| container env value | variable | rule ``texts_have_no_nul`` |
| container envFrom prefix | variable | rule ``variables_can_be_set`` (letters, digits, -_.) |
| value of a ConfigMap or Secret | variable | ``controllers/machine_data.py``, when it is read |
| key of a ConfigMap or Secret | variable, file | rule ``keys_are_file_names`` |
| volume items[].path | file | rule ``texts_have_no_nul`` |
| container mountPath | directory | rule ``texts_have_no_nul`` |
| container image, image of a check | path of a request | pattern ``IMAGE`` |
| names of objects, containers, volumes, ports | path, host name, engine label | DNS patterns |
| probe httpGet path, headers | request | patterns (printable ASCII) |
| exec command, container | argument, name | gateway |
| log container, cursor | name | gateway (compared with those that exist) |

Drivers check again, because an object may be older than the rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from datum_compute.api.compute.instance import Container

NUL = "\0"
NUL_PROBLEM = "must not contain a NUL byte"
# The runtime mounts these itself, and those of the host reveal the host.
RESERVED_DIRECTORIES = ("proc", "sys", "dev")


def normalize_mount_path(path: str) -> str:
    """Return the path as a container resolves it: without empty parts and ``.``."""
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def mount_path_problem(path: str) -> str:
    """Return why a volume must not be mounted at the path; empty if it may."""
    if NUL in path:
        return NUL_PROBLEM
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        return 'must not contain ".."'
    if not parts:
        return "must not be the root directory; choose a directory below it, such as /etc/app"
    if parts[0] in RESERVED_DIRECTORIES:
        return f"must not be /{parts[0]} or below it; choose another directory, such as /etc/app"
    return ""


def container_input_problems(container: Container) -> Iterator[str]:
    """Yield a problem for each field of a container that cannot be part of a process or a path."""
    probes = (container.readiness_probe, container.liveness_probe)
    commands = [p.exec_.command for p in probes if p is not None and p.exec_ is not None]
    texts = [
        *(("command", word) for word in container.command),
        *(("args", word) for word in container.args),
        *(("exec.command of a probe", word) for command in commands for word in command),
        *(("env", text) for variable in container.env for text in (variable.name, variable.value)),
    ]
    for field, text in texts:
        if NUL in text:
            yield f"{field} {NUL_PROBLEM}"
    for attachment in container.volume_attachments:
        if problem := mount_path_problem(attachment.mount_path):
            yield f"mountPath {problem}"
