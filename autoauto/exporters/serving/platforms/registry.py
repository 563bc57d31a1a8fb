"""Every platform, `PLATFORMS`: the `PLATFORM` of each file of this folder."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

import autoauto.exporters.serving.platforms as package
from autoauto.exporters.serving.platforms.platform import Platform


def _of_this_folder() -> tuple[Platform, ...]:
    modules = [import_module(f"{package.__name__}.{each.name}") for each in iter_modules(package.__path__)]
    return tuple(module.PLATFORM for module in modules if hasattr(module, "PLATFORM"))


PLATFORMS = _of_this_folder()
