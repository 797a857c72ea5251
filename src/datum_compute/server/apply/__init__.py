"""Who owns which field of an object: the pure half of server-side apply.

``fieldsets`` is the algebra, ``shapes`` says what a schema makes of lists and maps,
``comparison`` finds what a write touched, ``merging`` puts an applied configuration into an
object, ``managers`` keeps ``metadata.managedFields``, ``claims`` reads those that callers send,
``conflicts`` words what is refused.
May not enter: the store, the clock, requests. Values are never changed in place.
"""
