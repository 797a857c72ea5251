"""Decisions about copies between a project, the hub and the cells, and about unreachable cells.

Start with deployment.py: spec to the hub, status back. The stand-in for Karmada is in
planning/karmada.
"""
