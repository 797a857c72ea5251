"""Controllers of the platform plane: projects, services, locations, instance types, membership.

Start with projects.py.
"""
