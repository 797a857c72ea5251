"""Authentication and authorization with kubectl: whoami, can-i, tokens, roles and bindings."""

from __future__ import annotations

import json

import pytest

from testkit.processes.kubectl import Kubectl

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]


def with_token(kubectl: Kubectl, token: str) -> Kubectl:
    """Return a kubectl that authenticates with this token."""
    return kubectl.with_flags(f"--token={token.strip()}")


def namespace_of(kubectl: Kubectl) -> str:
    return kubectl.flags[-1].partition("=")[2]


def test_whoami_returns_the_user(in_project: Kubectl) -> None:
    assert "admin:project/default" in in_project("auth", "whoami")
    review = in_project.json("auth", "whoami")
    assert review["status"]["userInfo"]["username"] == "admin:project/default"


def test_can_i_answers_yes_or_no_and_lists_permissions(in_project: Kubectl) -> None:
    can_i = ("auth", "can-i")
    assert in_project(*can_i, "create", "workloads") == "yes\n"
    assert in_project(*can_i, "get", "/healthz") == "yes\n"
    for forbidden in (("delete", "instances"), ("create", "clusterroles"), ("*", "*")):
        done = in_project.run(*can_i, *forbidden)
        assert (done.returncode, done.stdout) == (1, "no\n"), forbidden
    listed = in_project(*can_i, "--list")
    assert "workloads.compute.datumapis.com" in listed


def test_an_administrator_may_impersonate_users(in_platform: Kubectl) -> None:
    done = in_platform.run("auth", "can-i", "get", "secrets", "--as=bob")
    assert (done.returncode, done.stdout) == (1, "no\n")
    assert "bob" in in_platform("auth", "whoami", "--as=bob")


def test_a_service_account_token_has_the_permissions_of_its_bindings(in_namespace: Kubectl) -> None:
    in_namespace("create", "serviceaccount", "robot")
    namespace = namespace_of(in_namespace)
    robot = with_token(in_namespace, in_namespace("create", "token", "robot", "--duration=10m"))
    assert f"system:serviceaccount:{namespace}:robot" in robot("auth", "whoami")
    assert "cannot list resource" in robot.error_of("get", "configmaps")
    in_namespace("create", "role", "reader", "--verb=get,list", "--resource=configmaps")
    in_namespace(
        "create", "rolebinding", "reads", "--role=reader", f"--serviceaccount={namespace}:robot"
    )
    assert "kube-root-ca.crt" in robot("get", "configmaps")
    assert robot("auth", "can-i", "list", "configmaps") == "yes\n"
    assert robot.run("auth", "can-i", "delete", "configmaps").stdout == "no\n"
    in_namespace("delete", "rolebinding", "reads")
    assert "cannot list resource" in robot.error_of("get", "configmaps")
    in_namespace("delete", "serviceaccount", "robot")
    assert "Unauthorized" in robot.error_of("get", "configmaps")


def test_a_token_with_an_invalid_duration_or_account_is_refused(in_namespace: Kubectl) -> None:
    assert "10" in in_namespace.error_of("create", "token", "default", "--duration=1s")
    assert "not found" in in_namespace.error_of("create", "token", "missing")


def test_a_token_cannot_be_bound_to_another_object(in_namespace: Kubectl) -> None:
    in_namespace("create", "secret", "generic", "anchor")
    bound = ("--bound-object-kind=Secret", "--bound-object-name=anchor")
    error = in_namespace.error_of("create", "token", "default", *bound)
    assert "spec.boundObjectRef" in error
    assert "bound to their service account only" in error


def test_cluster_roles_are_created_changed_and_deleted(in_platform: Kubectl) -> None:
    make = ("create", "clusterrole", "watcher", "--verb=get,list,watch")
    in_platform(*make, "--resource=workloads.compute.datumapis.com")
    in_platform("create", "clusterrolebinding", "watchers", "--clusterrole=watcher", "--group=eyes")
    as_eye = in_platform.with_flags("--as=ann", "--as-group=eyes")
    assert as_eye("auth", "can-i", "list", "workloads", "-A") == "yes\n"
    role = in_platform.json("get", "clusterrole", "watcher")
    role["rules"][0]["verbs"] = ["get"]
    in_platform("replace", "-f", "-", stdin=json.dumps(role))
    assert as_eye.run("auth", "can-i", "list", "workloads", "-A").stdout == "no\n"
    in_platform("set", "subject", "clusterrolebinding", "watchers", "--user=bob")
    assert "bob" in in_platform("describe", "clusterrolebinding", "watchers")
    assert "workloads" in in_platform("describe", "clusterrole", "watcher")
    in_platform("delete", "clusterrolebinding/watchers", "clusterrole/watcher")


def test_auth_reconcile_adds_the_missing_rules_of_a_role(in_namespace: Kubectl) -> None:
    metadata = {"name": "reconciled", "namespace": namespace_of(in_namespace)}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata}
    for verbs in (["get"], ["get", "list"]):
        rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": verbs}]
        in_namespace("auth", "reconcile", "-f", "-", stdin=json.dumps({**role, "rules": rules}))
    found = in_namespace.json("get", "role", "reconciled")["rules"]
    assert {verb for rule in found for verb in rule["verbs"]} == {"get", "list"}


def test_a_role_with_more_permissions_than_its_creator_is_refused(in_project: Kubectl) -> None:
    error = in_project.error_of(
        *("create", "role", "wide", "--verb=delete"),
        "--resource=instances.compute.datumapis.com",
    )
    assert "attempting to grant RBAC permissions not currently held" in error


def test_an_invalid_token_is_unauthorized(in_project: Kubectl) -> None:
    unauthorized = with_token(in_project, "not-a-token")
    for path in ("/healthz", "/version", "/apis", "/api/v1/namespaces"):
        assert "Unauthorized" in unauthorized.error_of("get", "--raw", path)
