"""Decisions in one city: slots, instances, gates, servers and the status of the deployment.

Start with instances.py, which orders creation, update and removal. Nothing here refers to other
planes.
"""
