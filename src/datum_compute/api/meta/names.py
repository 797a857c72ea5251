"""Checks of names: DNS labels and subdomains, qualified names, label values, mount paths.

Each function returns why a text is invalid, or the empty string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from datum_compute.api.compute.instance import Container

NAME_MAX, LABEL_MAX = 253, 63
_QUALIFIED_NAME_MAX = NAME_MAX + len("/") + LABEL_MAX

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_PATH_SEGMENT = re.compile(rf"[^/%\s\x00-\x1f\x7f]{{1,{NAME_MAX}}}")
_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def dns_label_problem(name: str) -> str:
    if len(name) <= LABEL_MAX and _DNS_LABEL.fullmatch(name):
        return ""
    return _too_long(name, LABEL_MAX) or "must be lower case letters, digits and inner dashes"


def dns_subdomain_problem(name: str) -> str:
    if len(name) <= NAME_MAX and _DNS_SUBDOMAIN.fullmatch(name):
        return ""
    return _too_long(name, NAME_MAX) or (
        "must be a lower case DNS subdomain: letters, digits, '-' and '.', starting and ending "
        "with a letter or digit"
    )


def path_segment_problem(name: str) -> str:
    """Check a name that can contain any character of a path segment, such as ``system:admin``."""
    if name in (".", "..") or not _PATH_SEGMENT.fullmatch(name):
        return (
            f"must be 1 to {NAME_MAX} characters, not '.' or '..', without '/', '%' or white space"
        )
    return ""


def qualified_name_problem(name: str) -> str:
    """Check a key: an optional DNS prefix with a slash, and a name."""
    if len(name) > _QUALIFIED_NAME_MAX:  # invalid, and too large for the cache
        return _find_qualified_name_problem(name)
    return _cached_qualified_name_problem(name)


def _find_qualified_name_problem(name: str) -> str:
    prefix, slash, part = name.rpartition("/")
    if slash and (len(prefix) > NAME_MAX or not _DNS_SUBDOMAIN.fullmatch(prefix)):
        return "the part before the slash must be a DNS subdomain"
    return _too_long(part, LABEL_MAX) or _match_problem(
        _NAME_PART,
        part,
        "the name must be letters, digits, '-', '_' or '.', starting and ending with a letter "
        "or digit",
    )


# Objects repeat the same few label keys and values.
_cached_qualified_name_problem = lru_cache(maxsize=4096)(_find_qualified_name_problem)


def label_value_problem(value: str) -> str:
    return _too_long(value, LABEL_MAX) or _find_label_value_problem(value)


@lru_cache(maxsize=4096)
def _find_label_value_problem(value: str) -> str:
    if not value:
        return ""
    return _match_problem(
        _NAME_PART,
        value,
        "a label value must be letters, digits, '-', '_' or '.', starting and ending with a "
        "letter or digit",
    )


def _too_long(text: str, length_max: int) -> str:
    return f"must be no more than {length_max} characters" if len(text) > length_max else ""


def _match_problem(pattern: re.Pattern[str], text: str, rule: str) -> str:
    return "" if pattern.fullmatch(text) else rule


# --- Rules for text that becomes part of a process or of a path
# The kernel accepts no NUL byte in an argument, a variable or a path. Engines cut the text at the
# NUL byte, or fail with an error that does not name the field. These fields can carry one:
#
# | field of a user | becomes | NUL is rejected by |
# |---|---|---|
# | container command, args | argument | rule ``texts_have_no_nul`` |
# | probe exec.command | argument | rule ``texts_have_no_nul`` |
# | container env name | variable | rule ``variables_can_be_set`` (printable ASCII) |
# | container env value | variable | rule ``texts_have_no_nul`` |
# | container envFrom prefix | variable | rule ``variables_can_be_set`` (letters, digits, -_.) |
# | value of a ConfigMap or Secret | variable | ``controllers/machine_data.py``, when it is read |
# | key of a ConfigMap or Secret | variable, file | rule ``keys_are_file_names`` |
# | volume items[].path | file | rule ``texts_have_no_nul`` |
# | container mountPath | directory | rule ``texts_have_no_nul`` |
# | container image, image of a check | path of a request | pattern ``IMAGE`` |
# | names of objects, containers, volumes, ports | path, host name, engine label | DNS patterns |
# | probe httpGet path, headers | request | patterns (printable ASCII) |
# | exec command, container | argument, name | gateway |
# | log container, cursor | name | gateway (compared with those that exist) |
#
# Drivers check again, because an object may be older than the rule.


NUL = "\0"
NUL_PROBLEM = "must not contain a NUL byte"
# The container runtime mounts these. Those of the host would reveal data of the host.
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
