"""The core kinds, Event of events.k8s.io, Lease and Scale."""

from __future__ import annotations

from datum_compute.server.encoding.protobuf import (
    Message,
    data_map,
    flag,
    many,
    micro_time,
    number,
    one,
    text,
    text_map,
    texts,
    time,
)
from datum_compute.server.protobuf.metadata import kind_message

_NAMESPACE_CONDITION = Message(
    {
        1: text("type"),
        2: text("status"),
        4: time("lastTransitionTime"),
        5: text("reason"),
        6: text("message"),
    }
)
_NAMESPACE_SPEC = Message({1: texts("finalizers")})
_NAMESPACE_STATUS = Message({1: text("phase"), 2: many("conditions", _NAMESPACE_CONDITION)})

NAMESPACE = kind_message({2: one("spec", _NAMESPACE_SPEC), 3: one("status", _NAMESPACE_STATUS)})

CONFIG_MAP = kind_message(
    {2: text_map("data"), 3: data_map("binaryData"), 4: flag("immutable", optional=True)}
)

SECRET = kind_message(
    {
        2: data_map("data"),
        3: text("type"),
        4: text_map("stringData"),
        5: flag("immutable", optional=True),
    }
)

_OBJECT_REFERENCE = Message(
    {
        1: text("kind"),
        2: text("namespace"),
        3: text("name"),
        4: text("uid"),
        5: text("apiVersion"),
        6: text("resourceVersion"),
        7: text("fieldPath"),
    }
)

SERVICE_ACCOUNT = kind_message(
    {
        2: many("secrets", _OBJECT_REFERENCE),
        3: many("imagePullSecrets", Message({1: text("name")})),
        4: flag("automountServiceAccountToken", optional=True),
    }
)

_EVENT_SERIES = Message({1: number("count"), 2: micro_time("lastObservedTime")})
_EVENT_SOURCE = Message({1: text("component"), 2: text("host")})

CORE_EVENT = kind_message(
    {
        2: one("involvedObject", _OBJECT_REFERENCE),
        3: text("reason"),
        4: text("message"),
        5: one("source", _EVENT_SOURCE),
        6: time("firstTimestamp"),
        7: time("lastTimestamp"),
        8: number("count"),
        9: text("type"),
        10: micro_time("eventTime"),
        11: one("series", _EVENT_SERIES, optional=True),
        12: text("action"),
        13: one("related", _OBJECT_REFERENCE, optional=True),
        14: text("reportingComponent"),
        15: text("reportingInstance"),
    }
)

EVENT = kind_message(
    {
        2: micro_time("eventTime"),
        3: one("series", _EVENT_SERIES, optional=True),
        4: text("reportingController"),
        5: text("reportingInstance"),
        6: text("action"),
        7: text("reason"),
        8: one("regarding", _OBJECT_REFERENCE),
        9: one("related", _OBJECT_REFERENCE, optional=True),
        10: text("note"),
        11: text("type"),
        12: one("deprecatedSource", _EVENT_SOURCE),
        13: time("deprecatedFirstTimestamp"),
        14: time("deprecatedLastTimestamp"),
        15: number("deprecatedCount"),
    }
)

_LEASE_SPEC = Message(
    {
        1: text("holderIdentity", optional=True),
        2: number("leaseDurationSeconds", optional=True),
        3: micro_time("acquireTime"),
        4: micro_time("renewTime"),
        5: number("leaseTransitions", optional=True),
        6: text("strategy", optional=True),
        7: text("preferredHolder", optional=True),
    }
)

LEASE = kind_message({2: one("spec", _LEASE_SPEC)})

SCALE = kind_message(
    {
        2: one("spec", Message({1: number("replicas")})),
        3: one("status", Message({1: number("replicas"), 2: text("selector")})),
    }
)
