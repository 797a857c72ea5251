"""Programs outside of the package that use its client, runtime and planes as libraries."""
