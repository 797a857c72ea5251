"""Generators and reports that make calls; nothing here is installed or imported by the product."""
