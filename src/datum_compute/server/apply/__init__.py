"""Server-side apply and field ownership.

Start with ``apply``. ``managed_fields`` maintains ``metadata.managedFields``, ``field_shape``
derives from a schema how values merge, ``compare`` finds the fields that a write changed, ``merge``
merges a configuration into an object, and ``field_set`` has the set operations. Values are never
changed in place.
"""
