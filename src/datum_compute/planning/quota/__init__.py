"""Decisions about quota: which claims are granted, what buckets show, which claims a slot needs.

Start with claims.py. One serialized controller per project applies the decisions of buckets.py.
"""
