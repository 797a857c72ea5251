"""Decisions about projects, services, entitlements, locations and instance types.

Start with entitlements.py. Operators write most of the objects these decisions read.
"""
