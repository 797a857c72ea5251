"""Decisions of the embedded replacement of Karmada: bindings, Works, and their status.

Start with bindings.py. Nothing here runs where a real Karmada is the hub.
"""
