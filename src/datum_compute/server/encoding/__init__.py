"""Request bodies, query options and selectors, and the forms of responses.

Start with ``body.py`` (request bodies) and ``representation.py`` (responses as objects, metadata
or tables). Typed Go clients send built-in kinds as protobuf, which ``protobuf.py`` decodes to JSON.
Responses are always JSON. To add a protobuf kind, add its table to ``protobuf_kinds.py``, and a
golden file that the Go types have encoded.
"""
