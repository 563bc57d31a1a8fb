"""The formats of profiles by name: `IMPORTERS` and `GRAPH_IMPORTERS`, entry points of these groups."""

from __future__ import annotations

from autoauto.plugins import Registry
from autoauto.profile.importers.importer import GraphImporter, Importer

IMPORTERS = Registry("importer", Importer)
GRAPH_IMPORTERS = Registry("graph_importer", GraphImporter)
