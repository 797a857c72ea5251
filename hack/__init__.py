"""Generators and reports for make. Nothing here is installed, or imported by the product."""
