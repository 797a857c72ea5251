"""Who am I, what may I do, and letting others in: auth, create token, roles and bindings."""

from __future__ import annotations

import json

import pytest

from testkit.processes.kubectl import Kubectl

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]


def bearing(here: Kubectl, token: str) -> Kubectl:
    """As whoever has this token, and nobody else."""
    return here.flagged(f"--token={token.strip()}")


def namespace_of(here: Kubectl) -> str:
    return here.more[-1].partition("=")[2]


def test_everybody_may_ask_who_they_are(in_project: Kubectl) -> None:
    assert "admin:project/default" in in_project("auth", "whoami")
    told = in_project.json("auth", "whoami")
    assert told["status"]["userInfo"]["username"] == "admin:project/default"


def test_what_one_may_do_is_answered_with_yes_and_no(in_project: Kubectl) -> None:
    ask = ("auth", "can-i")
    assert in_project(*ask, "create", "workloads") == "yes\n"
    assert in_project(*ask, "get", "/healthz") == "yes\n"
    for forbidden in (("delete", "instances"), ("create", "clusterroles"), ("*", "*")):
        done = in_project.run(*ask, *forbidden)
        assert (done.returncode, done.stdout) == (1, "no\n"), forbidden
    listed = in_project(*ask, "--list")
    assert "workloads.compute.datumapis.com" in listed


def test_an_administrator_may_ask_about_others(in_platform: Kubectl) -> None:
    done = in_platform.run("auth", "can-i", "get", "secrets", "--as=somebody")
    assert (done.returncode, done.stdout) == (1, "no\n")
    assert "somebody" in in_platform("auth", "whoami", "--as=somebody")


def test_a_service_account_gets_a_token_and_may_do_what_it_was_given(space: Kubectl) -> None:
    space("create", "serviceaccount", "robot")
    namespace = namespace_of(space)
    robot = bearing(space, space("create", "token", "robot", "--duration=10m"))
    assert f"system:serviceaccount:{namespace}:robot" in robot("auth", "whoami")
    assert "cannot list resource" in robot.refused("get", "configmaps")
    space("create", "role", "reader", "--verb=get,list", "--resource=configmaps")
    space("create", "rolebinding", "reads", "--role=reader", f"--serviceaccount={namespace}:robot")
    assert "kube-root-ca.crt" in robot("get", "configmaps")
    assert robot("auth", "can-i", "list", "configmaps") == "yes\n"
    assert robot.run("auth", "can-i", "delete", "configmaps").stdout == "no\n"
    space("delete", "rolebinding", "reads")
    assert "cannot list resource" in robot.refused("get", "configmaps")
    space("delete", "serviceaccount", "robot")
    assert "Unauthorized" in robot.refused("get", "configmaps")


def test_a_token_that_is_asked_for_too_long_or_for_nobody_is_refused(space: Kubectl) -> None:
    assert "10" in space.refused("create", "token", "default", "--duration=1s")
    assert "not found" in space.refused("create", "token", "nobody")


def test_a_token_is_bound_to_its_account_and_to_nothing_else(space: Kubectl) -> None:
    space("create", "secret", "generic", "anchor")
    bound = ("--bound-object-kind=Secret", "--bound-object-name=anchor")
    error = space.refused("create", "token", "default", *bound)
    assert "spec.boundObjectRef" in error
    assert "bound to their service account only" in error


def test_roles_of_the_whole_plane_are_made_changed_and_deleted(in_platform: Kubectl) -> None:
    make = ("create", "clusterrole", "watcher", "--verb=get,list,watch")
    in_platform(*make, "--resource=workloads.compute.datumapis.com")
    in_platform("create", "clusterrolebinding", "watchers", "--clusterrole=watcher", "--group=eyes")
    as_eye = in_platform.flagged("--as=ann", "--as-group=eyes")
    assert as_eye("auth", "can-i", "list", "workloads", "-A") == "yes\n"
    role = in_platform.json("get", "clusterrole", "watcher")
    role["rules"][0]["verbs"] = ["get"]
    in_platform("replace", "-f", "-", stdin=json.dumps(role))
    assert as_eye.run("auth", "can-i", "list", "workloads", "-A").stdout == "no\n"
    in_platform("set", "subject", "clusterrolebinding", "watchers", "--user=bob")
    assert "bob" in in_platform("describe", "clusterrolebinding", "watchers")
    assert "workloads" in in_platform("describe", "clusterrole", "watcher")
    in_platform("delete", "clusterrolebinding/watchers", "clusterrole/watcher")


def test_roles_are_reconciled_from_a_file(space: Kubectl) -> None:
    metadata = {"name": "reconciled", "namespace": namespace_of(space)}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata}
    for verbs in (["get"], ["get", "list"]):
        rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": verbs}]
        space("auth", "reconcile", "-f", "-", stdin=json.dumps({**role, "rules": rules}))
    found = space.json("get", "role", "reconciled")["rules"]
    assert {verb for rule in found for verb in rule["verbs"]} == {"get", "list"}


def test_nobody_gives_away_more_than_they_have(in_project: Kubectl) -> None:
    error = in_project.refused(
        *("create", "role", "wide", "--verb=delete"),
        "--resource=instances.compute.datumapis.com",
    )
    assert "attempting to grant RBAC permissions not currently held" in error


def test_a_token_that_nobody_gave_opens_nothing(in_project: Kubectl) -> None:
    stranger = bearing(in_project, "not-a-token")
    for path in ("/healthz", "/version", "/apis", "/api/v1/namespaces"):
        assert "Unauthorized" in stranger.refused("get", "--raw", path)
