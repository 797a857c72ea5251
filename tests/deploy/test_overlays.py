"""The overlays are complete, and their pods have no more rights than the code declares."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
import yaml

from datum_compute.app.settings.settings import manager_settings
from hack.account_rules import account_rules, pods_rules, single_cluster_rules
from hack.generate import find_stale
from hack.manifests import OVERLAY_NAMESPACE as NAMESPACE
from hack.manifests import federation_files
from tests.deploy.overlays import (
    DEPLOY,
    OVERLAYS,
    build_manifests,
    build_text,
    deployment,
    manager_container,
    manifests_of_kind,
)


def test_generated_files_are_fresh() -> None:
    assert list(find_stale()) == [], "run: make crds docs"


def test_no_two_files_are_equal() -> None:
    paths: dict[bytes, Path] = {}
    for path in sorted(path for path in DEPLOY.rglob("*") if path.is_file()):
        other = paths.setdefault(path.read_bytes(), path)
        assert other == path, f"{path} is equal to {other}: let kustomize set the difference"


def test_kustomizations_list_all_manifests_of_their_folder() -> None:
    for folder in ("crds", "webhook"):
        listed = yaml.safe_load((DEPLOY / folder / "Kustomization").read_text())["resources"]
        assert listed == sorted(path.name for path in (DEPLOY / folder).glob("*.yaml"))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_satisfy_the_restricted_standard(overlay: str) -> None:
    pod = deployment(overlay)["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = manager_container(overlay)["securityContext"]
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {"drop": ["ALL"]}
    (namespace,) = [
        n for n in manifests_of_kind(overlay, "Namespace") if n["metadata"]["name"] == NAMESPACE
    ]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_manager_accepts_its_flags_and_environment(overlay: str, tmp_path: Path) -> None:
    container = manager_container(overlay)
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    settings = manager_settings(container["args"], environment)
    assert settings.leader.enabled
    assert settings.ports.metrics_token is not None
    if overlay in ("single-cluster", "dev"):
        assert (settings.controllers.management, settings.controllers.cell) == (True, True)
        assert settings.driver.name == ("pods" if overlay == "single-cluster" else "simulated")
    else:
        assert (settings.controllers.management, settings.controllers.cell) == (
            overlay != "cell",
            overlay == "cell",
        )
        assert settings.planes.federation is not None
    assert (settings.ports.webhook is not None) == (overlay in ("management-plane", "dev"))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_file_in_the_flags_and_environment_of_the_manager_is_mounted(overlay: str) -> None:
    container = manager_container(overlay)
    pod = deployment(overlay)["spec"]["template"]["spec"]
    paths = [v["value"] for v in container["env"] if v["value"].startswith("/")]
    paths += [a.partition("=")[2] for a in container["args"] if a.partition("=")[2].startswith("/")]
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    for path in paths:
        assert any(path == m or path.startswith(f"{m}/") for m in mounts), path
    assert set(mounts.values()) == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_account_has_exactly_the_declared_rules(overlay: str) -> None:
    roles = {
        role["metadata"]["name"]: role["rules"]
        for role in manifests_of_kind(overlay, "ClusterRole")
    }
    single = {"compute-manager": single_cluster_rules(), "compute-pods": pods_rules()}
    wanted = {
        "management-plane": {},
        "cell": {
            **{f"{name}-cell": rules for name, rules in account_rules("cell").items()},
            "compute-pods": pods_rules(),
        },
        "single-cluster": single,
        "dev": single,
    }[overlay]
    assert roles == {name: list(rules) for name, rules in wanted.items()}
    account = deployment(overlay)["spec"]["template"]["spec"]["serviceAccountName"]
    for binding in manifests_of_kind(overlay, "ClusterRoleBinding"):
        (subject,) = binding["subjects"]
        assert subject["namespace"] == NAMESPACE
        if binding["metadata"]["name"] != "compute-hub-cell":
            assert subject["name"] == account
    accounts = manifests_of_kind(overlay, "ServiceAccount")
    assert account in [a["metadata"]["name"] for a in accounts]
    assert {a["metadata"]["namespace"] for a in accounts} == {NAMESPACE}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_rule_allows_all_verbs_or_all_groups(overlay: str) -> None:
    for role in manifests_of_kind(overlay, "ClusterRole"):
        for rule in role["rules"]:
            assert "*" not in rule["verbs"]
            assert "*" not in rule.get("apiGroups", [])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_network_policies_allow_only_the_ports_of_the_manager(overlay: str) -> None:
    policies = {
        p["metadata"]["name"]: p["spec"] for p in manifests_of_kind(overlay, "NetworkPolicy")
    }
    assert policies["nothing"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    opened = {
        port["port"]
        for spec in policies.values()
        for rule in spec.get("ingress", ())
        for port in rule["ports"]
    }
    assert opened == {p["containerPort"] for p in manager_container(overlay)["ports"]}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_drain_evicts_one_replica_at_a_time(overlay: str) -> None:
    (budget,) = manifests_of_kind(overlay, "PodDisruptionBudget")
    replicas = deployment(overlay)["spec"]["replicas"]
    assert budget["spec"]["minAvailable"] == replicas - 1
    labels = deployment(overlay)["spec"]["template"]["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_webhook_is_called_by_a_name_of_its_certificate() -> None:
    (certificate,) = manifests_of_kind("dev", "Certificate")
    hooks = [
        hook["clientConfig"]["service"]
        for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
        for configuration in manifests_of_kind("dev", kind)
        for hook in configuration["webhooks"]
    ]
    assert len(hooks) >= 2
    for service in hooks:
        assert f"{service['name']}.{service['namespace']}.svc" in certificate["spec"]["dnsNames"]
    issuers = [issuer["metadata"]["name"] for issuer in manifests_of_kind("dev", "Issuer")]
    assert certificate["spec"]["issuerRef"]["name"] in issuers
    pod = deployment("dev")["spec"]["template"]["spec"]
    secrets = [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v]
    assert certificate["spec"]["secretName"] in secrets


def test_definitions_are_installed_on_the_planes_that_store_their_objects() -> None:
    for overlay in ("cell", "single-cluster", "dev"):
        assert len(manifests_of_kind(overlay, "CustomResourceDefinition")) == len(
            list((DEPLOY / "crds").glob("*.yaml"))
        )
    assert not manifests_of_kind("management-plane", "CustomResourceDefinition")
    assert build_text("hub").count("kind: CustomResourceDefinition\n") >= 20
    assert "kind: ResourceInterpreterCustomization\n" in build_text("hub")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_two_manifests_have_the_same_name(overlay: str) -> None:
    names = [
        (m["kind"], m["apiVersion"], m["metadata"].get("namespace"), m["metadata"]["name"])
        for m in build_manifests(overlay)
    ]
    assert len(names) == len(set(names))


def test_the_accounts_of_a_federation_are_equal_in_all_files_that_define_them() -> None:
    """Files that are applied to the same API server must not overwrite each other."""
    accounts = {
        file: list(yaml.safe_load_all(text))
        for file, text in federation_files().items()
        if file.endswith("/accounts.yaml")
    }
    for (_, one), (_, other) in combinations(accounts.items(), 2):
        by_name = {(o["kind"], o["metadata"]["name"]): o for o in one}
        for obj in other:
            kind, name = obj["kind"], obj["metadata"]["name"]
            assert by_name.get((kind, name), obj) == obj, f"{kind} {name} differs between files"
