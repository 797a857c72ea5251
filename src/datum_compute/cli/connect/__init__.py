"""Connection of a command to a plane: target, session, gateway.

Start with target.py (which plane), then session.py (one conversation with it).
"""
