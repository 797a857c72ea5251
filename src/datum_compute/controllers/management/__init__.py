"""Beside the projects: what users write becomes deployments, travels to the hub and comes back."""
