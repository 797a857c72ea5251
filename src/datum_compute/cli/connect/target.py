"""Finds the plane that a command connects to.

The first source that is set decides: flags; the DATUM_* variables that a host program sets for its
plugins; KUBECONFIG; the local platform; in a pod, the cluster. The project comes from the flag, the
variable or ``datum.toml``. A source that is incomplete is an error that names what is missing; the
next source is not tried.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from datum_compute.api.planes import PLATFORM, path_prefix, plane_role, project_plane, split_path
from datum_compute.cli.connect.project_file import find_project_file
from datum_compute.cli.environment import (
    API_HOST,
    CREDENTIALS_HELPER,
    KUBECONFIG,
    PROJECT,
    SERVICE_HOST,
    SERVICE_PORT,
    SESSION,
    CliEnvironment,
    default_state_dir,
)
from datum_compute.cli.errors import ForbiddenError, OtherError, UsageError
from datum_compute.cli.options import TargetOptions
from datum_compute.client.auth.connection import HelperSignIn
from datum_compute.client.auth.credentials import SERVICE_ACCOUNT, in_cluster_connection
from datum_compute.client.auth.kubeconfig import (
    Connection,
    Kubeconfig,
    KubeconfigError,
    connection_of,
    load_kubeconfig,
    validate_token,
)

_HELPER_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class ResolvedTarget:
    connection: Connection
    is_local_platform: bool = False
    files: tuple[Path, ...] = ()  # the kubeconfig it was found in
    kubectl_flags: tuple[str, ...] = ()  # what selects the same plane for kubectl


def resolve_target(
    environment: CliEnvironment, options: TargetOptions, *, inner: bool = False
) -> ResolvedTarget:
    """Find the plane. With ``inner``, it may be a hub or a cell, for operators of the platform."""
    environ = environment.environ
    by_flag = options.kubeconfig or options.context
    if not by_flag and (environ.get(API_HOST) or environ.get(CREDENTIALS_HELPER)):
        return ResolvedTarget(_connection_from_host(environment, options))
    local_file = default_state_dir(environment) / "kubeconfig"
    if _is_in_cluster(environment, options, local_file):
        return ResolvedTarget(_in_cluster(environment))
    files = _kubeconfig_files(environment, options, local_file)
    try:
        config = load_kubeconfig(files)
        connection = _select_context(config, environment, options)
    except KubeconfigError as error:
        raise OtherError(
            f"{error}.", "Choose another with --kubeconfig, --context or --project."
        ) from error
    if not inner:
        _refuse_inner_plane(connection)
    return ResolvedTarget(
        connection,
        is_local_platform=files == [local_file],
        files=tuple(files),
        kubectl_flags=(*_kubeconfig_flags(environment, files), *_context_flags(config, connection)),
    )


def _kubeconfig_flags(environment: CliEnvironment, files: Sequence[Path]) -> list[str]:
    """Return the flag for the kubeconfig, unless kubectl reads the same files without it."""
    if len(files) != 1 or str(files[0]) == environment.environ.get(KUBECONFIG, ""):
        return []
    return [f"--kubeconfig={files[0]}"]


def _context_flags(config: Kubeconfig, connection: Connection) -> list[str]:
    name = connection.context
    if name == config.current_context:
        return []
    if name in config.contexts:
        return [f"--context={name}"]
    # A project without a context is reached with the credentials of the platform.
    return [f"--context={PLATFORM}", f"--server={connection.server}{connection.path_prefix}"]


def _select_context(
    config: Kubeconfig, environment: CliEnvironment, options: TargetOptions
) -> Connection:
    """Return the connection of the selected context.

    A project without a context is reached with the credentials of the platform context; the project
    authorizes that user.
    """
    name = _context(environment, options)
    by_project = bool(name) and not options.context
    if not by_project or name in config.contexts or PLATFORM not in config.contexts:
        return connection_of(config, name)
    platform = connection_of(config, PLATFORM)
    try:
        plane = project_plane(name.partition("/")[2])
    except ValueError:
        raise UsageError(f"{name.partition('/')[2]!r} is not a valid project name.") from None
    return replace(platform, path_prefix=path_prefix(plane), context=name, namespace="default")


def _refuse_inner_plane(connection: Connection) -> None:
    """Raise for a hub or a cell: controllers reconcile workloads only in projects."""
    plane, _ = split_path(connection.path_prefix or "/")
    if plane_role(plane) in ("hub", "cell"):
        raise UsageError(
            f"Context {connection.context!r} is the plane {plane}, not a project.",
            "Select a project with --project, or its context with --context.",
        )


def _is_in_cluster(environment: CliEnvironment, options: TargetOptions, local_file: Path) -> bool:
    """Return True in a pod if no flag, variable or local platform selects another plane."""
    environ = environment.environ
    chosen = options.kubeconfig or options.context or options.project or environ.get(KUBECONFIG)
    return bool(environ.get(SERVICE_HOST)) and not chosen and not local_file.is_file()


def _in_cluster(environment: CliEnvironment) -> Connection:
    environ = environment.environ
    port = environ.get(SERVICE_PORT) or "443"
    try:
        return in_cluster_connection(SERVICE_ACCOUNT, environ[SERVICE_HOST], port)
    except KubeconfigError as error:
        raise OtherError(f"{error}.", "Choose a plane with --kubeconfig.") from error


def _kubeconfig_files(
    environment: CliEnvironment, options: TargetOptions, local_file: Path
) -> list[Path]:
    if options.kubeconfig:
        return [Path(options.kubeconfig).expanduser()]
    named = environment.environ.get(KUBECONFIG, "")
    if named:
        return [Path(part) for part in named.split(os.pathsep) if part]
    if not local_file.is_file():
        raise OtherError(
            f"No platform is selected: --kubeconfig, {API_HOST} and {KUBECONFIG} are not set, and "
            "no local platform runs on this machine.",
            f"Start one: {environment.command('local', 'up')}",
        )
    return [local_file]


def _context(environment: CliEnvironment, options: TargetOptions) -> str:
    """The context to use; empty for the current one."""
    if options.context and options.project:
        raise UsageError("--context and --project both select a plane.", "Pass only one of them.")
    if options.context:
        return options.context
    project = _project(environment, options)
    return f"project/{project}" if project else ""


def _project(environment: CliEnvironment, options: TargetOptions) -> str:
    """Return the project of the flag, the variable or ``datum.toml``; empty if none is set."""
    given = options.project or environment.environ.get(PROJECT, "")
    return given or find_project_file(environment).project


def _connection_from_host(environment: CliEnvironment, options: TargetOptions) -> Connection:
    """Return the connection that a host program describes in the environment."""
    environ = environment.environ
    project = _project(environment, options)
    needed = {API_HOST: environ.get(API_HOST), CREDENTIALS_HELPER: environ.get(CREDENTIALS_HELPER)}
    missing = [name for name, value in needed.items() if not value]
    if not project:
        missing.append(f"{PROJECT} (or --project)")
    if missing:
        raise OtherError(f"Not set: {', '.join(missing)}.", "Set it, or use --kubeconfig.")
    try:
        plane = project_plane(project)
    except ValueError:
        raise UsageError(f"{project!r} is not a valid project name.") from None
    helper, session = environ[CREDENTIALS_HELPER], environ.get(SESSION, "")
    token = _helper_token(helper, session)
    return Connection(
        server=_https(environ[API_HOST]),
        path_prefix=path_prefix(plane),
        token=token,
        context=plane,
        # A wait may be longer than the life of a token.
        sign_in=HelperSignIn(helper, _helper_arguments(session), token),
    )


def _https(host: str) -> str:
    if host.startswith("http://"):
        raise OtherError(f"{API_HOST} must use https, because requests contain a token.")
    return f"https://{host.removeprefix('https://').rstrip('/')}"


def _helper_arguments(session: str) -> tuple[str, ...]:
    return ("auth", "get-token", *(("--session", session) if session else ()))


def _helper_token(helper: str, session: str) -> str:
    """Return the output of ``<helper> auth get-token``. Its stderr is passed to the user."""
    arguments = [helper, *_helper_arguments(session)]
    hint = "Sign in again with the program that started this command."
    try:
        done = subprocess.run(
            arguments, stdout=subprocess.PIPE, timeout=_HELPER_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise OtherError(
            f"{helper} returned no token within {_HELPER_TIMEOUT_S} s.", hint
        ) from None
    except OSError as error:
        raise OtherError(
            f"Cannot run {helper} ({CREDENTIALS_HELPER}): {error.strerror}.", hint
        ) from error
    if done.returncode != 0:
        raise ForbiddenError(f"{helper} auth get-token failed (exit {done.returncode}).", hint)
    try:
        return validate_token(done.stdout.decode("latin-1"), f"the output of {helper}")
    except KubeconfigError as error:
        raise ForbiddenError(f"{error}.", hint) from None
