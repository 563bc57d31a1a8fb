"""The formats of profiles by name: `IMPORTERS` and `GRAPH_IMPORTERS`, entry points of these groups."""

from __future__ import annotations

from autoauto.plugins import Registry
from autoauto.profile.importers.importer import GraphImporter, Importer
from autoauto.records.errors import BadInput

IMPORTERS = Registry("importer", Importer)
GRAPH_IMPORTERS = Registry("graph_importer", GraphImporter)


def importer_named(name: str) -> Importer:
    """The importer of a format.

    Raises:
        BadInput: there is none.
    """
    if name not in IMPORTERS:
        raise BadInput(f"a profile is of {', '.join(IMPORTERS.names)}, got {name}; correct it there")
    return IMPORTERS[name]
