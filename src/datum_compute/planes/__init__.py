"""The planes: access to the engaged ones, their membership, roles and initial objects.

It does not reconcile. Start with ``planes.py`` (lookup), then ``roles.py`` and ``bootstrap.py``.
"""
