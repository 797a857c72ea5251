"""What a plane serves: resources, discovery documents and OpenAPI.

Start with resources.py (a kind as the server serves it), then plane_resources.py (by plane).
"""
