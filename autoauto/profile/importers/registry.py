"""The formats of profiles by name, `IMPORTERS`: entry points of this group."""

from __future__ import annotations

from autoauto.plugins import Registry
from autoauto.profile.importers.importer import Importer

IMPORTERS = Registry("importer", Importer)
