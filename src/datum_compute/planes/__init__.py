"""Access to the engaged planes, and the membership, roles and initial objects of planes.

There are no controllers here. Start with ``planes.py`` (lookup), then ``roles.py`` and
``bootstrap.py``.
"""
