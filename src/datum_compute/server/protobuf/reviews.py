"""Questions about access and tokens: authorization.k8s.io and authentication.k8s.io.

Their status is the server's answer, so only what callers ask is read.
"""

from __future__ import annotations

from datum_compute.server.encoding.protobuf import Message, number, one, text, texts, texts_map
from datum_compute.server.protobuf.metadata import SELECTOR_ATTRIBUTES, kind_message

_RESOURCE = Message(
    {
        1: text("namespace"),
        2: text("verb"),
        3: text("group"),
        4: text("version"),
        5: text("resource"),
        6: text("subresource"),
        7: text("name"),
        8: one("fieldSelector", SELECTOR_ATTRIBUTES, optional=True),
        9: one("labelSelector", SELECTOR_ATTRIBUTES, optional=True),
    }
)
_ATTRIBUTES = {
    1: one("resourceAttributes", _RESOURCE, optional=True),
    2: one("nonResourceAttributes", Message({1: text("path"), 2: text("verb")}), optional=True),
}
_SUBJECT_ACCESS = Message(
    {
        **_ATTRIBUTES,
        3: text("user"),
        4: texts("groups"),
        5: texts_map("extra"),
        6: text("uid"),
    }
)
_BOUND_OBJECT = Message({1: text("kind"), 2: text("apiVersion"), 3: text("name"), 4: text("uid")})
_TOKEN_REQUEST_SPEC = Message(
    {
        1: texts("audiences"),
        3: one("boundObjectRef", _BOUND_OBJECT, optional=True),
        4: number("expirationSeconds", optional=True),
    }
)

SUBJECT_ACCESS_REVIEW = kind_message({2: one("spec", _SUBJECT_ACCESS)})
SELF_SUBJECT_ACCESS_REVIEW = kind_message({2: one("spec", Message(_ATTRIBUTES))})
SELF_SUBJECT_RULES_REVIEW = kind_message({2: one("spec", Message({1: text("namespace")}))})
SELF_SUBJECT_REVIEW = kind_message({})
TOKEN_REVIEW = kind_message({2: one("spec", Message({1: text("token"), 2: texts("audiences")}))})
TOKEN_REQUEST = kind_message({2: one("spec", _TOKEN_REQUEST_SPEC)})
