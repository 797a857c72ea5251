"""The plane of a command: from flags, variables, KUBECONFIG, or the local platform."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import yaml

from datum_compute.cli.connect.target import ResolvedTarget, resolve_target
from datum_compute.cli.environment import default_state_dir
from datum_compute.cli.errors import UsageError
from datum_compute.cli.options import TargetOptions
from tests.cli.runner import CliRunner


def kubeconfig(path: Path, *contexts: str, port: int = 7443) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "current-context": contexts[0],
        "clusters": [{"name": "c", "cluster": {"server": f"https://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": n, "context": {"cluster": "c", "user": "u"}} for n in contexts],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def helper(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return str(path)


def find(cli: CliRunner, **choice: str) -> ResolvedTarget:
    streams = [io.StringIO() for _ in range(3)]
    return resolve_target(cli.environment(*streams), TargetOptions(**choice))


def failure(cli: CliRunner, **choice: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        find(cli, **choice)
    return caught.value


@pytest.fixture
def hosted(tmp_path: Path) -> dict[str, str]:
    """The variables a host program sets."""
    return {
        "DATUM_PROJECT": "shop",
        "DATUM_API_HOST": "api.example.test",
        "DATUM_CREDENTIALS_HELPER": helper(tmp_path / "helper", 'echo "$*" | tr " " _'),
    }


@pytest.fixture
def local_file(tmp_path: Path) -> Path:
    return kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig", "project/default", port=1)


def test_without_any_configuration_the_next_command_is_printed(cli: CliRunner) -> None:
    error = failure(cli)
    assert error.exit_code == 1
    assert error.hint == "Start one: datumctl compute local up"


def test_the_local_platform_is_used_last(cli: CliRunner, local_file: Path) -> None:
    found = find(cli)
    assert found.connection.server == "https://127.0.0.1:1"
    assert found.is_local_platform


def test_kubeconfig_comes_before_the_local_platform(
    cli: CliRunner, local_file: Path, tmp_path: Path
) -> None:
    one, two = kubeconfig(tmp_path / "1", "project/a"), kubeconfig(tmp_path / "2", "project/b")
    cli.environ = {"KUBECONFIG": f"{one}:{two}"}
    found = find(cli)
    assert (found.connection.context, found.is_local_platform) == ("project/a", False)
    assert find(cli, context="project/b").connection.context == "project/b"


def test_the_host_program_comes_before_kubeconfig(
    cli: CliRunner, hosted: dict[str, str], local_file: Path
) -> None:
    cli.environ = {**hosted, "KUBECONFIG": str(local_file)}
    found = find(cli).connection
    assert found.server == "https://api.example.test"
    assert found.path_prefix == (
        "/apis/resourcemanager.miloapis.com/v1alpha1/projects/shop/control-plane"
    )
    assert (found.token, found.context) == ("auth_get-token", "project/shop")
    assert found.ca_pem is None
    assert not found.insecure


def test_the_session_is_passed_to_the_credential_helper(
    cli: CliRunner, hosted: dict[str, str]
) -> None:
    cli.environ = {**hosted, "DATUM_SESSION": "s1"}
    assert find(cli).connection.token == "auth_get-token_--session_s1"


def test_flags_take_precedence(
    cli: CliRunner, hosted: dict[str, str], local_file: Path, tmp_path: Path
) -> None:
    cli.environ = {**hosted, "KUBECONFIG": str(local_file)}
    named = kubeconfig(tmp_path / "named", "hub", "project/shop")
    assert find(cli, kubeconfig=str(named), context="hub").connection.context == "hub"
    assert find(cli, context="project/default").connection.context == "project/default"
    assert "projects/mine/" in find(cli, project="mine").connection.path_prefix


def test_a_project_chooses_its_context(cli: CliRunner, tmp_path: Path) -> None:
    cli.environ = {"KUBECONFIG": str(kubeconfig(tmp_path / "k", "hub", "project/shop"))}
    assert find(cli, project="shop").connection.context == "project/shop"
    cli.environ = {**cli.environ, "DATUM_PROJECT": "shop"}
    assert find(cli).connection.context == "project/shop"
    assert "project/shop" in failure(cli, project="other").message


def test_a_project_without_a_context_is_reached_through_the_platform(
    cli: CliRunner, tmp_path: Path
) -> None:
    cli.environ = {"KUBECONFIG": str(kubeconfig(tmp_path / "k", "project/shop", "platform"))}
    found = find(cli, project="later").connection
    assert found.context == "project/later"
    assert found.path_prefix.endswith("/projects/later/control-plane")
    assert found.token == "t"
    assert failure(cli, project="No/Name").exit_code == 2


def test_the_cluster_of_a_pod_is_used_last(cli: CliRunner, local_file: Path) -> None:
    cli.environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert find(cli).is_local_platform
    local_file.unlink()
    assert "the service account of this pod is incomplete" in str(failure(cli))


def test_context_and_project_exclude_each_other(cli: CliRunner, local_file: Path) -> None:
    assert failure(cli, context="hub", project="shop").exit_code == 2


@pytest.mark.parametrize("name", ["DATUM_PROJECT", "DATUM_API_HOST", "DATUM_CREDENTIALS_HELPER"])
def test_an_incomplete_environment_of_the_host_program_is_reported(
    cli: CliRunner, hosted: dict[str, str], local_file: Path, name: str
) -> None:
    cli.environ = {key: value for key, value in hosted.items() if key != name}
    assert name in failure(cli).message


def test_a_named_kubeconfig_must_exist(cli: CliRunner, local_file: Path, tmp_path: Path) -> None:
    assert str(tmp_path / "gone") in failure(cli, kubeconfig=str(tmp_path / "gone")).message


@pytest.mark.parametrize(
    ("script", "expected", "code"),
    [
        ("echo s3cret; exit 4", "failed (exit 4)", 5),
        ("true", "is empty", 5),
        ("echo s3cret two", "not allowed in a token", 5),
    ],
)
def test_a_helper_that_fails_is_reported_without_its_output(
    cli: CliRunner, hosted: dict[str, str], tmp_path: Path, script: str, expected: str, code: int
) -> None:
    cli.environ = {**hosted, "DATUM_CREDENTIALS_HELPER": helper(tmp_path / "bad", script)}
    error = failure(cli)
    assert expected in error.message
    assert error.exit_code == code
    assert "s3cret" not in error.message + error.hint


def test_a_missing_helper_is_named(cli: CliRunner, hosted: dict[str, str]) -> None:
    cli.environ = {**hosted, "DATUM_CREDENTIALS_HELPER": "/nowhere/helper"}
    assert "Cannot run /nowhere/helper" in failure(cli).message


def test_a_token_is_never_sent_without_tls(cli: CliRunner, hosted: dict[str, str]) -> None:
    cli.environ = {**hosted, "DATUM_API_HOST": "http://api.example.test"}
    assert "https" in failure(cli).message


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"DATUM_STATE_DIR": "/a/b"}, "/a/b"),
        ({"XDG_STATE_HOME": "/x"}, "/x/datum-compute"),
        ({"DATUM_STATE_DIR": "/a", "XDG_STATE_HOME": "/x"}, "/a"),
        ({"XDG_STATE_HOME": "relative"}, "HOME/.local/state/datum-compute"),
        ({}, "HOME/.local/state/datum-compute"),
    ],
)
def test_where_the_local_platform_lives(
    cli: CliRunner, environ: dict[str, str], expected: str
) -> None:
    cli.environ = environ
    streams = [io.StringIO() for _ in range(3)]
    found = default_state_dir(cli.environment(*streams))
    assert str(found) == expected.replace("HOME", str(cli.home))


@pytest.mark.parametrize(("context", "path"), [("hub", "hub"), ("cell/dfw", "cells/dfw")])
def test_a_plane_other_than_a_project_is_refused(
    cli: CliRunner, tmp_path: Path, context: str, path: str
) -> None:
    """Regression: a workload was created on the hub, where no controller handles it."""
    file = kubeconfig(tmp_path / "config", context)
    file.write_text(file.read_text().replace(":7443", f":7443/planes/{path}"))
    error = failure(cli, kubeconfig=str(file), context=context)
    assert error.exit_code == 2
    assert "not a project" in str(error)


def test_kubectl_gets_the_flags_that_select_the_same_plane(cli: CliRunner, tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "named", "platform", "project/shop")
    named = f"--kubeconfig={file}"
    assert find(cli, kubeconfig=str(file)).kubectl_flags == (named,)
    selected = find(cli, kubeconfig=str(file), project="shop")
    assert selected.kubectl_flags == (named, "--context=project/shop")
    through_platform = find(cli, kubeconfig=str(file), project="other")
    server = "https://127.0.0.1:7443/apis/resourcemanager.miloapis.com/v1alpha1/projects/other"
    assert through_platform.kubectl_flags == (
        *(named, "--context=platform", f"--server={server}/control-plane"),
    )
    cli.environ = {"KUBECONFIG": str(file)}
    assert find(cli, context="project/shop").kubectl_flags == ("--context=project/shop",)
