"""The regression requirements of the platform, and the test that covers each.

Numbers are those of the list of regression requirements, 1 to 45. A requirement has a test, or is
in ``COVERED_BY_OTHER_PARTS`` with the part of the platform that will cover it; move it when that
part is built. Numbers with a letter (k14, h7) are from other parts of the design.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from datum_compute.api.compute.instance import Instance
from datum_compute.api.meta.codec import from_json
from datum_compute.api.planes import cell_plane
from datum_compute.app.settings.settings import manager_settings
from datum_compute.controllers import registry
from datum_compute.planning.rollout.instances import plan_instances
from datum_compute.planning.rollout.status import deployment_status
from testkit.builders import NOW, a_deployment

TESTS = Path(__file__).resolve().parents[1]

REQUIREMENTS: list[tuple[str, str, str]] = [
    ("1 nothing writes Running", "journeys/test_instances.py",
     "test_nothing_ever_writes_a_condition_named_running"),
    ("1 a stale Running is ignored", "planning/rollout/test_gates.py",
     "test_ready_follows_the_conditions"),
    ("2 a dormant instance is Ready", "journeys/test_instances.py",
     "test_a_dormant_instance_is_ready_with_the_reason_asleep"),
    ("3 up-to-date follows the observed hash", "planning/rollout/test_status.py",
     "test_updated_replicas_follow_the_observed_hash"),
    ("3 updated replicas decrease during a rollout and recover", "journeys/test_instances.py",
     "test_a_restart_annotation_starts_a_rollout_that_updated_replicas_follow"),
    ("3 observedGeneration", "journeys/test_instances.py",
     "test_a_status_describes_its_observed_generation"),
    ("3 absent control fields never crash", "journeys/test_requirements.py",
     "test_an_instance_without_control_fields_can_be_read_and_planned"),
    ("4 gates hold", "journeys/test_instances.py",
     "test_an_unknown_gate_blocks_the_instance_until_its_owner_removes_it"),
    ("4 providers act only on gate-free instances", "planning/rollout/test_server.py",
     "test_a_gated_instance_gets_no_server"),
    ("5 network failures surface on the instance", "journeys/test_network.py",
     "test_a_missing_network_is_reported_on_the_instance_until_it_exists"),
    ("6 claims go to the project, grant and denial re-trigger", "journeys/test_quota.py",
     "test_a_denied_instance_starts_when_the_grant_is_raised"),
    ("8 a claim leads to its instance", "planning/quota/test_claims.py",
     "test_a_claim_maps_to_its_instance"),
    ("8 other claims map to no instance", "planning/quota/test_claims.py",
     "test_a_foreign_claim_maps_to_no_instance"),
    ("9 no collision with claims of other kinds", "journeys/test_quota.py",
     "test_claims_of_other_kinds_with_the_same_name_are_not_deleted"),
    ("10 single mode: claims in the namespace of their instances", "planning/quota/test_claims.py",
     "test_in_a_single_cluster_a_claim_is_in_the_namespace_of_its_instance"),
    ("10 single mode: claims enqueue the instances of the cell", "e2e/test_single_cluster.py",
     "test_quota_limits_instances_until_the_grant_is_raised_with_kubectl"),
    ("11 no API server is used by accident", "app/settings/test_settings.py",
     "test_one_api_server_for_all_planes_needs_the_single_cluster_mode"),
    ("11 a missing file fails the start", "app/settings/test_settings.py",
     "test_a_missing_hub_kubeconfig_is_an_error"),
    ("11 no project is charged by accident", "planning/quota/test_claims.py",
     "test_a_namespace_without_labels_has_no_claim_location"),
    ("12 single-cluster mode runs both groups", "app/settings/test_settings.py",
     "test_one_api_server_serves_every_plane_in_single_cluster_mode"),
    ("12 no workload controller on cells", "journeys/test_requirements.py",
     "test_a_cell_runs_no_controller_that_needs_a_project"),
    ("14 shipped roles suffice on the embedded planes", "app/test_manager_role.py",
     "test_no_request_of_the_manager_is_forbidden_during_the_life_of_a_workload"),
    ("14 shipped roles suffice on a single cluster", "e2e/test_single_cluster.py",
     "test_a_workload_is_created_scaled_updated_and_deleted_with_kubectl"),
    ("19 the location lands on deployment and instance", "journeys/test_status.py",
     "test_the_location_is_copied_to_the_deployment_and_every_instance"),
    ("19 instances are created without a location", "journeys/test_network.py",
     "test_a_missing_network_is_reported_on_the_instance_until_it_exists"),
    ("24 pending requeue in tiers", "planning/quota/test_claims.py",
     "test_the_requeue_delay_grows_with_the_waiting_time"),
    ("25 a conflict while waiting costs one step", "journeys/test_quota.py",
     "test_conflicts_with_other_writers_do_not_delay_an_instance_that_waits_for_quota"),
    ("26 a burst clears", "journeys/test_quota.py",
     "test_instances_beyond_the_limit_do_not_run_and_report_the_reason"),
    ("30 sizing precedence", "planning/quota/test_claims.py",
     "test_the_first_complete_source_counts"),
    ("32 a plane that is engaged later is reconciled", "runtime/test_event_mapping.py",
     "test_keys_on_a_plane_engaged_later_are_mapped_again"),
    ("32 readiness waits for the planes", "app/test_listener.py",
     "test_readyz_fails_until_nothing_is_missing_and_healthz_never_fails"),
    ("34 the service declares its quota metrics", "journeys/test_quota.py",
     "test_the_service_declares_its_quota_metrics"),
    ("35 no two controllers write the same metadata", "sim/test_world.py",
     "test_a_workload_is_created_and_deleted_without_faults"),
    ("36 a kind that is not served blocks no other", "runtime/test_reconcile.py",
     "test_a_kind_that_a_plane_does_not_serve_does_not_block_others"),
    ("38 finalizers work in a terminating namespace", "journeys/test_quota.py",
     "test_deleting_a_namespace_frees_no_quota_before_its_machines_are_gone"),
    ("38 and on one API server", "e2e/test_single_cluster.py",
     "test_deleting_a_namespace_deletes_its_machines"),
    ("40 caches keep no managedFields", "runtime/test_informer.py",
     "test_managed_fields_are_not_cached"),
    ("41 not done while the status is not observed", "cli/commands/test_rollout.py",
     "test_a_workload_status_of_an_older_generation_is_not_done"),
    ("41 until then the desired count is that of the spec", "cli/commands/test_rollout.py",
     "test_a_missing_deployment_shows_the_replicas_of_the_spec"),
    ("k14 another size is another claim", "journeys/test_quota.py",
     "test_another_instance_type_gets_another_claim"),
    ("7 a gate is removed when its condition is recorded", "planning/rollout/test_gates.py",
     "test_a_gate_is_removed_in_the_pass_that_records_its_condition"),
    ("12 controller groups are off by default", "journeys/test_requirements.py",
     "test_a_manager_without_controller_groups_reports_the_missing_flag"),
    ("15 self-describing labels", "planning/rollout/test_instances.py",
     "test_a_new_instance_has_the_labels_and_owner_that_identify_it"),
    ("16 backfill without recreate", "journeys/test_instances.py",
     "test_edited_labels_are_restored_without_a_recreate"),
    ("16 backfill uses no rollout slot", "planning/rollout/test_instances.py",
     "test_labels_are_repaired_independently_of_the_rollout"),
    ("20 no write when nothing differs", "sim/test_world.py",
     "test_a_workload_is_created_and_deleted_without_faults"),
    ("27 warnings are stored", "runtime/test_event_recorder.py",
     "test_a_request_becomes_an_event_that_kubectl_describe_finds"),
    ("28 highest first, one at a time, never in place", "journeys/test_instances.py",
     "test_a_new_image_recreates_one_instance_at_a_time_from_the_highest_ordinal"),
    ("29 reasons and ranks", "planning/rollout/test_gates.py", "test_ready_follows_the_conditions"),
    ("29 the message reaches the user", "journeys/test_instances.py",
     "test_a_bad_image_is_reported_and_can_be_rolled_forward"),
    ("13 reviews carry extra claims", "admission/test_webhook_lookups.py",
     "test_an_access_review_contains_all_claims_of_the_user"),
    ("33 LocationBindings of the project limit the cities", "server/test_admission.py",
     "test_a_city_is_normalized_and_the_error_of_an_unknown_one_suggests_another"),
    ("39 a source of two cities is copied to both", "journeys/test_referenced_data.py",
     "test_a_source_of_two_cities_is_copied_to_both_and_deleted_from_each_on_its_own"),
    ("39 a lookup is about one template", "planning/federation/test_referenced_objects.py",
     "test_a_resolution_of_another_template_does_not_count"),
    ("k7 missing data is reported on the cell", "journeys/test_referenced_data.py",
     "test_missing_sources_block_the_instance_and_are_reported_until_they_exist"),
    ("k1 a grant is sticky", "controllers/workload/test_instance.py",
     "test_a_running_instance_stays_ready_when_the_grant_is_deleted"),
    ("k2 a bad template can be rolled forward", "planning/rollout/test_instances.py",
     "test_plan_of_an_ordered_deployment"),
    ("k2 scale-down never stalls", "journeys/test_instances.py",
     "test_unready_instances_do_not_block_a_scale_down"),
    ("k4 PendingQuota does not stick", "planning/rollout/test_server.py",
     "test_a_denied_quota_is_reported_in_every_condition_until_it_is_granted"),
    ("k5 Ready is about the current generation", "planning/rollout/test_gates.py",
     "test_ready_has_the_current_generation"),
    ("k6 a stale write restores no gate", "journeys/test_instances.py",
     "test_an_unknown_gate_blocks_the_instance_until_its_owner_removes_it"),
    ("k17 an upgrade rolls nothing", "planning/workload/test_templates.py",
     "test_a_new_field_with_a_default_does_not_change_the_hash"),
    ("k23 counts per reason", "planning/rollout/test_status.py",
     "test_one_ready_instance_makes_the_deployment_available"),
    ("h7 one, no or several servers of an instance", "planning/rollout/test_server.py",
     "test_two_servers_of_one_instance_are_reported_by_name"),
    ("h7 a deleted server enqueues its instance", "journeys/test_instances.py",
     "test_a_server_deleted_by_hand_is_replaced"),
    ("h7 a bounded resync", "planning/rollout/test_server.py",
     "test_every_instance_is_resynced"),
    ("17 a projection belongs to the project's deployment", "journeys/test_projections.py",
     "test_a_projection_is_owned_by_and_deleted_with_the_projects_deployment"),
    ("18 mapped by label, then by name; a lost owner is restored", "journeys/test_projections.py",
     "test_a_copy_without_its_label_is_mapped_by_its_name_and_a_lost_owner_is_restored"),
    ("18 no deployment, no projection", "planning/federation/test_instances.py",
     "test_without_a_deployment_no_projection_is_created"),
    ("18 copies without an owner are quarantined", "journeys/test_quarantine.py",
     "test_a_copy_of_a_deployment_that_its_project_does_not_have_is_quarantined"),
    ("21 hub status reaches the project at once", "journeys/test_projections.py",
     "test_a_hub_status_is_copied_to_the_project_by_its_event_and_not_by_a_resync"),
    ("22 the bare project name", "planes/test_planes.py",
     "test_upstream_labels_map_to_the_bare_project_name"),
    ("23 an empty name is dropped", "planes/test_planes.py",
     "test_an_empty_or_foreign_cluster_label_maps_to_no_project"),
    ("23 a plane that is not engaged drops the key", "runtime/test_manager.py",
     "test_engaged_planes_are_served_and_disengaged_ones_are_not"),
    ("31 the single member's status is passed through", "planning/karmada/test_bindings.py",
     "test_the_status_of_the_single_cell_is_written_to_the_object"),
    ("37 no hub deployment, no copy", "planning/federation/test_instances.py",
     "test_without_a_hub_deployment_no_copy_is_written"),
    ("37 a copy is recreated only under its deployment", "journeys/test_projections.py",
     "test_a_deleted_copy_is_recreated_only_while_its_deployment_is_on_the_hub"),
    ("37 cleanup without the cell", "journeys/test_projections.py",
     "test_project_and_hub_are_cleaned_up_after_a_cell_is_lost"),
    ("k13 a cell works without the hub", "sim/test_federation_templates.py",
     "test_instances_are_deleted_on_a_cell_while_the_center_is_down"),
    ("k18 and trap 7: Applied is about one generation", "planning/karmada/test_bindings.py",
     "test_an_applied_earlier_generation_does_not_count_as_applied"),
    ("k19 unresolvable copies are quarantined", "journeys/test_quarantine.py",
     "test_a_copy_without_identity_is_quarantined_with_one_event_until_it_has_one"),
]  # fmt: skip


COVERED_BY_OTHER_PARTS = {
    42: "command line: instances",
    43: "command line: instances",
    44: "command line: restart",
    45: "command line: entitlement",
}


def test_every_requirement_number_has_a_test_or_a_part() -> None:
    numbers = {requirement.split()[0] for requirement, _, _ in REQUIREMENTS}
    tested = {int(number) for number in numbers if number.isdecimal()}
    assert tested | set(COVERED_BY_OTHER_PARTS) == set(range(1, 46))
    assert not tested & set(COVERED_BY_OTHER_PARTS)


def test_a_cell_runs_no_controller_that_needs_a_project() -> None:
    kinds = {edge.kind.kind for c in registry.CELL for edge in c.edges_on("cell")}
    assert not kinds & {"Workload", "Network", "NetworkBinding", "SubnetClaim", "Subnet"}
    assert "workload" not in {controller.name for controller in registry.CELL}


@pytest.mark.parametrize(("requirement", "file", "name"), REQUIREMENTS)
def test_every_requirement_has_its_test(requirement: str, file: str, name: str) -> None:
    tree = ast.parse((TESTS / file).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert name in {n.name for n in tree.body if isinstance(n, functions)}, requirement


def test_an_instance_without_control_fields_can_be_read_and_planned() -> None:
    containers = [{"name": "app", "image": "web:1"}]
    body = {
        "metadata": {"name": "web-dfw-0", "namespace": "default", "uid": "u"},
        "spec": {"runtime": {"sandbox": {"containers": containers}}},
    }
    instance = from_json(body, Instance)
    status = deployment_status(a_deployment(), [instance], NOW)
    assert (status.replicas, status.updated_replicas) == (1, 0)
    assert plan_instances(cell_plane("dfw"), a_deployment(), [instance]).actions


def test_a_manager_without_controller_groups_reports_the_missing_flag(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        manager_settings(["--kubeconfig", "k", "--state-dir", "s"])
    assert "nothing to run: pass --enable-management-controllers" in capsys.readouterr().err
