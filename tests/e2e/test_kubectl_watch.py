"""``kubectl get --watch`` and ``kubectl wait``."""

from __future__ import annotations

import pytest

from testkit.processes.kubectl import Kubectl
from tests.e2e.manifests import config_map, workload

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

EVENTS = ("--output-watch-events", "--no-headers")


def test_a_watch_prints_creations_changes_and_deletions(in_namespace: Kubectl) -> None:
    in_namespace("create", "-f", "-", stdin=workload("before"))
    with in_namespace.start_command("get", "workloads", "--watch", *EVENTS) as lines:
        assert lines.next_words()[:2] == ["ADDED", "before"]
        in_namespace("create", "-f", "-", stdin=workload("new"))
        assert lines.next_words()[:2] == ["ADDED", "new"]
        in_namespace("label", "workload", "new", "a=b")
        assert lines.next_words()[:2] == ["MODIFIED", "new"]
        in_namespace("delete", "workload", "new")
        assert lines.next_words()[:2] == ["DELETED", "new"]


def test_a_watch_by_name_or_label_prints_no_other_objects(in_namespace: Kubectl) -> None:
    in_namespace("create", "-f", "-", stdin=config_map("seen", labels={"team": "a"}))
    with (
        in_namespace.start_command("get", "cm", "seen", "--watch-only", *EVENTS) as by_name,
        in_namespace.start_command("get", "cm", "-l", "team=a", "--watch", *EVENTS) as by_label,
    ):
        assert by_label.next_words()[:2] == ["ADDED", "seen"]
        in_namespace("create", "-f", "-", stdin=config_map("unseen"))
        in_namespace("label", "cm", "seen", "team=b", "--overwrite")
        assert by_label.next_words()[:2] == ["DELETED", "seen"], "it no longer matches the selector"
        in_namespace("delete", "cm", "seen")
        seen = {tuple(by_name.next_words()[:2]) for _ in range(2)}
        assert ("DELETED", "seen") in seen


def test_a_watch_can_print_values_of_objects(in_namespace: Kubectl) -> None:
    path = "jsonpath={.metadata.name}={.data.color}{'\\n'}"
    with in_namespace.start_command("get", "cm", "--watch", "--watch-only", "-o", path) as lines:
        # The start of a watch is not visible, so change the object until an event is printed.
        for number in range(10):
            in_namespace("apply", "-f", "-", stdin=config_map("c", color=str(number)))
        assert lines.next_words()[0].startswith("c=")


def test_wait_for_a_condition_a_value_and_a_creation(in_namespace: Kubectl) -> None:
    in_namespace("create", "-f", "-", stdin=workload())
    wait = ("wait", "workload/web", "--timeout=20s")
    unmet = in_namespace.error_of(
        "wait", "workload/web", "--for=condition=Available", "--timeout=1s"
    )
    assert "timed out" in unmet
    with in_namespace.start_command(*wait, "--for=condition=Available") as condition:
        condition_met = (
            '{"status":{"replicas":4,"conditions":[{"type":"Available","status":"True",'
            '"reason":"Test","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}'
        )
        patch = ("patch", "workload", "web", "--subresource=status", "--type=merge")
        in_namespace(*patch, "-p", condition_met)
        assert condition.next_words()[-2:] == ["condition", "met"]
    assert "condition met" in in_namespace(*wait, "--for=jsonpath={.status.replicas}=4")
    assert "condition met" in in_namespace(*wait, "--for=create")


def test_wait_for_deletion(in_namespace: Kubectl) -> None:
    in_namespace("create", "-f", "-", stdin=config_map("c"))
    with in_namespace.start_command("wait", "cm/c", "--for=delete", "--timeout=20s") as waiting:
        in_namespace("delete", "cm", "c", "--wait=false")
        assert waiting.exit_code() == 0
    in_namespace("wait", "cm/c", "--for=delete", "--timeout=5s")
