"""Who the planes are: how controllers find the hub, a project or a cell, and what each starts with.

May not enter: reconciling.
"""
