"""Protobuf request bodies of built-in kinds, read as the JSON they stand for.

Typed Go clients, kubectl among them, send built-in kinds and options in this form and no other.
Answers stay JSON, which every client takes. Our own kinds have no protobuf form.
Reading order: ``envelope`` (what a body is), ``message`` (how a table reads bytes), ``wire`` (the
encoding itself), then the tables: ``metadata``, ``core``, ``rbac``, ``reviews``.
To add a kind: a ``Message`` in the table file of its group, listed in ``envelope.KINDS``; a
golden file made by the real Go types proves the numbers.
May not enter: generated code, the protobuf library.
"""
