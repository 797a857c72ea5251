"""Rules that depend on other objects or on permissions of the user.

They run after the rules of ``chain.py`` found no error. A rule consists of two pure functions:
``queries`` returns what the rule needs, and ``check`` yields causes, which refuse the write, and
warnings, which the response contains. The embedded server answers the queries from its store, the
webhook with a client. Answers can be slightly out of date.

To add a rule, write it in the module of its subject and list it in ``CONTEXT_RULES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from datum_compute.admission.findings import AdmissionWarning, Finding
from datum_compute.admission.queries import Answers, Deletion, Query, Write
from datum_compute.admission.rules import services as entitlement
from datum_compute.admission.rules.controller_owned import (
    check_controller_access,
    query_controller_access,
)
from datum_compute.admission.rules.instance_type import (
    check_grace_period,
    check_type_disabled,
    query_catalogue,
)
from datum_compute.admission.rules.services import check_organization_exists, query_organizations
from datum_compute.admission.rules.workload_references import (
    check_cities_known,
    check_instance_type_offered,
    check_networks_not_deleted,
    check_reference_access,
    query_instance_types,
    query_locations,
    query_networks,
    query_reference_access,
)
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import (
    DEPLOYMENT,
    ENTITLEMENT,
    INSTANCE,
    INSTANCE_TYPE,
    PROJECT,
    WORKLOAD,
)


def _no_queries(_write: Write) -> Iterable[Query]:
    return ()


@dataclass(frozen=True, slots=True)
class ContextRule:
    queries: Callable[[Write], Iterable[Query]]
    check: Callable[[Write, Answers], Iterable[Finding]]


_OWNERSHIP = (ContextRule(query_controller_access, check_controller_access),)

CONTEXT_RULES: Mapping[str, tuple[ContextRule, ...]] = {
    WORKLOAD.resource: (
        ContextRule(entitlement.query_entitlements, entitlement.check_project_access),
        ContextRule(query_locations, check_cities_known),
        ContextRule(query_instance_types, check_instance_type_offered),
        ContextRule(query_reference_access, check_reference_access),
        ContextRule(query_networks, check_networks_not_deleted),
    ),
    DEPLOYMENT.resource: _OWNERSHIP,
    INSTANCE.resource: _OWNERSHIP,
    PROJECT.resource: (ContextRule(query_organizations, check_organization_exists),),
    ENTITLEMENT.resource: (
        ContextRule(entitlement.query_offered_services, entitlement.check_service_offered),
    ),
    INSTANCE_TYPE.resource: (ContextRule(_no_queries, check_grace_period),),
}


class Findings(msgspec.Struct, frozen=True):
    causes: tuple[Cause, ...] = ()
    warnings: tuple[str, ...] = ()


_NOTHING = Findings()


def queries_of_write(write: Write) -> tuple[Query, ...]:
    """Return the queries that the rules of a write need, each once and in order."""
    rules = CONTEXT_RULES.get(write.kind.resource, ())
    queries: dict[Query, None] = {}
    for rule in rules:
        queries.update(dict.fromkeys(rule.queries(write)))
    return tuple(queries)


def evaluate(write: Write, answers: Answers) -> Findings:
    """Run the rules of a write."""
    found: list[Finding] = []
    for rule in CONTEXT_RULES.get(write.kind.resource, ()):
        found.extend(rule.check(write, answers))
    if not found:
        return _NOTHING
    return Findings(
        causes=tuple(f for f in found if isinstance(f, Cause)),
        warnings=tuple(f.text for f in found if isinstance(f, AdmissionWarning)),
    )


# --- Rules for deletions
# They do not run for an object that is terminating already. To add a rule, write it in the module
# of its subject and list it in ``DELETION_RULES``.


@dataclass(frozen=True, slots=True)
class DeletionRule:
    queries: Callable[[Deletion], Iterable[Query]]
    check: Callable[[Deletion, Answers], Iterable[Cause]]


DELETION_RULES: Mapping[str, tuple[DeletionRule, ...]] = {
    INSTANCE_TYPE.resource: (DeletionRule(query_catalogue, check_type_disabled),),
}


def queries_of_deletion(deletion: Deletion) -> tuple[Query, ...]:
    """Return the queries that the rules of a deletion need, each once and in order."""
    queries = (query for rule in _deletion_rules(deletion) for query in rule.queries(deletion))
    return tuple(dict.fromkeys(queries))


def evaluate_deletion(deletion: Deletion, answers: Answers) -> list[Cause]:
    """Run the rules of a deletion."""
    rules = _deletion_rules(deletion)
    return [cause for rule in rules for cause in rule.check(deletion, answers)]


def _deletion_rules(deletion: Deletion) -> tuple[DeletionRule, ...]:
    if deletion.old["metadata"].get("deletionTimestamp"):
        return ()
    return DELETION_RULES.get(deletion.kind.resource, ())
