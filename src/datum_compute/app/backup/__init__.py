"""Backups of a state directory: write, verify and restore.

Start with backup.py. restore.py lists the steps that survive a crash.
"""
