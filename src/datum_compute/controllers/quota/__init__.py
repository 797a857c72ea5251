"""Controllers of quota: claims of slots, their release, and the decisions of a project.

Start with decisions.py, which decides claims; claims.py creates and releases them in cells.
"""
