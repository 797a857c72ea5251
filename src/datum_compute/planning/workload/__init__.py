"""Decisions about a Workload: its deployments by city, status, revisions, fallback and deletion.

Start with deployments.py. Decisions inside one city are in planning/rollout.
"""
