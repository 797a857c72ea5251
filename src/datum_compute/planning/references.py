"""What the ConfigMaps and Secrets that a template refers to mean for its instances."""

from __future__ import annotations

from datum_compute.api.references import Reference, Source, references, references_of, sources

__all__ = ["Reference", "Source", "references", "references_of", "sources"]
