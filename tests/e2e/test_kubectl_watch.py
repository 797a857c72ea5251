"""``get --watch`` and ``wait``: what kubectl sees while things change."""

from __future__ import annotations

import pytest

from testkit.processes.kubectl import Kubectl
from tests.e2e.manifests import config_map, workload

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

EVENTS = ("--output-watch-events", "--no-headers")


def test_a_watch_tells_of_what_is_made_changed_and_deleted(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=workload("before"))
    with space.started("get", "workloads", "--watch", *EVENTS) as lines:
        assert lines.next()[:2] == ["ADDED", "before"]
        space("create", "-f", "-", stdin=workload("new"))
        assert lines.next()[:2] == ["ADDED", "new"]
        space("label", "workload", "new", "a=b")
        assert lines.next()[:2] == ["MODIFIED", "new"]
        space("delete", "workload", "new")
        assert lines.next()[:2] == ["DELETED", "new"]


def test_a_watch_of_one_object_and_of_a_selection_sees_nothing_else(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=config_map("seen", labels={"team": "a"}))
    with (
        space.started("get", "cm", "seen", "--watch-only", *EVENTS) as by_name,
        space.started("get", "cm", "-l", "team=a", "--watch", *EVENTS) as by_label,
    ):
        assert by_label.next()[:2] == ["ADDED", "seen"]
        space("create", "-f", "-", stdin=config_map("unseen"))
        space("label", "cm", "seen", "team=b", "--overwrite")
        assert by_label.next()[:2] == ["DELETED", "seen"], "it left the selection"
        space("delete", "cm", "seen")
        seen = {tuple(by_name.next()[:2]) for _ in range(2)}
        assert ("DELETED", "seen") in seen


def test_a_watch_of_whole_objects_gives_their_yaml(space: Kubectl) -> None:
    path = "jsonpath={.metadata.name}={.data.color}{'\\n'}"
    with space.started("get", "cm", "--watch", "--watch-only", "-o", path) as lines:
        # Nothing tells when a watch has begun: what is there by then is seen, or its next change.
        for number in range(10):
            space("apply", "-f", "-", stdin=config_map("c", color=str(number)))
        assert lines.next()[0].startswith("c=")


def test_wait_for_a_condition_a_value_and_a_creation(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=workload())
    about = ("wait", "workload/web", "--timeout=20s")
    unmet = space.refused("wait", "workload/web", "--for=condition=Available", "--timeout=1s")
    assert "timed out" in unmet
    with space.started(*about, "--for=condition=Available") as condition:
        condition_met = (
            '{"status":{"replicas":4,"conditions":[{"type":"Available","status":"True",'
            '"reason":"Test","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}'
        )
        patch = ("patch", "workload", "web", "--subresource=status", "--type=merge")
        space(*patch, "-p", condition_met)
        assert condition.next()[-2:] == ["condition", "met"]
    assert "condition met" in space(*about, "--for=jsonpath={.status.replicas}=4")
    assert "condition met" in space(*about, "--for=create")


def test_wait_for_deletion(space: Kubectl) -> None:
    space("create", "-f", "-", stdin=config_map("c"))
    with space.started("wait", "cm/c", "--for=delete", "--timeout=20s") as waiting:
        space("delete", "cm", "c", "--wait=false")
        assert waiting.exit_code() == 0
    space("wait", "cm/c", "--for=delete", "--timeout=5s")
