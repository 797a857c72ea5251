"""Messages that every kind shares: metadata, owners, selectors, conditions, delete options."""

from __future__ import annotations

from collections.abc import Mapping

from datum_compute.server.encoding.protobuf import (
    Field,
    Message,
    flag,
    json_text,
    many,
    number,
    one,
    text,
    text_map,
    texts,
    time,
)

_OWNER_REFERENCE = Message(
    {
        1: text("kind"),
        3: text("name"),
        4: text("uid"),
        5: text("apiVersion"),
        6: flag("controller", optional=True),
        7: flag("blockOwnerDeletion", optional=True),
    }
)

_MANAGED_FIELDS = Message(
    {
        1: text("manager"),
        2: text("operation"),
        3: text("apiVersion"),
        4: time("time"),
        6: text("fieldsType"),
        7: json_text("fieldsV1"),
        8: text("subresource"),
    }
)

OBJECT_META = Message(
    {
        1: text("name"),
        2: text("generateName"),
        3: text("namespace"),
        4: text("selfLink"),
        5: text("uid"),
        6: text("resourceVersion"),
        7: number("generation"),
        8: time("creationTimestamp"),
        9: time("deletionTimestamp"),
        10: number("deletionGracePeriodSeconds", optional=True),
        11: text_map("labels"),
        12: text_map("annotations"),
        13: many("ownerReferences", _OWNER_REFERENCE),
        14: texts("finalizers"),
        17: many("managedFields", _MANAGED_FIELDS),
    }
)

_REQUIREMENT = Message({1: text("key"), 2: text("operator"), 3: texts("values")})

LABEL_SELECTOR = Message({1: text_map("matchLabels"), 2: many("matchExpressions", _REQUIREMENT)})

# Selectors of an access review: as text, or taken apart.
SELECTOR_ATTRIBUTES = Message({1: text("rawSelector"), 2: many("requirements", _REQUIREMENT)})

_PRECONDITIONS = Message({1: text("uid", optional=True), 2: text("resourceVersion", optional=True)})

DELETE_OPTIONS = Message(
    {
        1: number("gracePeriodSeconds", optional=True),
        2: one("preconditions", _PRECONDITIONS, optional=True),
        3: flag("orphanDependents", optional=True),
        4: text("propagationPolicy", optional=True),
        5: texts("dryRun"),
        6: flag("ignoreStoreReadErrorWithClusterBreakingPotential", optional=True),
    }
)


def kind_message(fields: Mapping[int, Field]) -> Message:
    """A kind: its metadata and its own fields."""
    return Message({1: one("metadata", OBJECT_META), **fields})
