"""Roles and bindings of rbac.authorization.k8s.io."""

from __future__ import annotations

from datum_compute.server.encoding.protobuf import Message, many, one, text, texts
from datum_compute.server.protobuf.metadata import LABEL_SELECTOR, kind_message

_POLICY_RULE = Message(
    {
        1: texts("verbs"),
        2: texts("apiGroups"),
        3: texts("resources"),
        4: texts("resourceNames"),
        5: texts("nonResourceURLs"),
    }
)
_ROLE_REFERENCE = Message({1: text("apiGroup"), 2: text("kind"), 3: text("name")})
_SUBJECT = Message({1: text("kind"), 2: text("apiGroup"), 3: text("name"), 4: text("namespace")})
_AGGREGATION_RULE = Message({1: many("clusterRoleSelectors", LABEL_SELECTOR)})

ROLE = kind_message({2: many("rules", _POLICY_RULE)})
CLUSTER_ROLE = kind_message(
    {
        2: many("rules", _POLICY_RULE),
        3: one("aggregationRule", _AGGREGATION_RULE, optional=True),
    }
)
BINDING = kind_message({2: many("subjects", _SUBJECT), 3: one("roleRef", _ROLE_REFERENCE)})
