"""What every kind shares: metadata, field types, names, timestamps, patches and the wire codec.

Start with objects.py (metadata and the description of a kind), then codec.py.
"""
