"""The webhook manifests: up to date, with every kind that has rules."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from datum_compute.admission.chain import CHAIN
from datum_compute.admission.context_rules import CONTEXT_RULES, DELETION_RULES
from datum_compute.admission.webhook import (
    ANSWER_TIMEOUT_S,
    find_validated_kind,
    mutated_kinds,
    validated_kinds,
)
from datum_compute.api.kinds import KINDS, WORKLOAD
from hack.webhook_manifests import webhook_files


def webhooks(file: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(webhook_files()[file])["webhooks"]
    return found


def resources(hooks: list[dict[str, Any]]) -> set[str]:
    return {
        f"{resource}.{group}"
        for hook in hooks
        for rule in hook["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_the_manifests_contain_every_platform_kind_with_rules() -> None:
    ours = {kind.resource for kind in KINDS if not (kind.built_in or kind.partial)}
    with_rules = ours & (set(CHAIN) | set(CONTEXT_RULES))
    assert resources(webhooks("validating.yaml")) == with_rules
    assert {kind.resource for kind in validated_kinds()} == with_rules
    assert resources(webhooks("mutating.yaml")) == {kind.resource for kind in mutated_kinds()}
    assert find_validated_kind(WORKLOAD.group, WORKLOAD.version, WORKLOAD.plural) is WORKLOAD
    assert find_validated_kind("", "v1", "secrets") is None


def test_the_manifests_contain_deletions_of_every_kind_with_deletion_rules() -> None:
    registered = {
        f"{resource}.{group}"
        for hook in webhooks("validating.yaml")
        for rule in hook["rules"]
        if "DELETE" in rule["operations"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert registered == set(DELETION_RULES)


@pytest.mark.parametrize("file", ["validating.yaml", "mutating.yaml"])
def test_an_unavailable_webhook_denies_writes_and_has_time_to_respond(file: str) -> None:
    for hook in webhooks(file):
        assert hook["failurePolicy"] == "Fail"
        assert hook["sideEffects"] == "None"
        assert hook["timeoutSeconds"] > ANSWER_TIMEOUT_S
        # Writes of controllers and garbage collectors, and of finalizers, bypass the webhook.
        assert hook["matchConditions"]
        assert not any("status" in r for rule in hook["rules"] for r in rule["resources"])
