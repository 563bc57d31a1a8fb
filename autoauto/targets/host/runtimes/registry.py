"""The runtimes by name: `runtime_named`, and those that are `installed`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import NamedTuple

from autoauto.records.errors import missing_extra
from autoauto.records.profile import HostRuntime
from autoauto.targets.host.runtimes.protocol import Runtime


class _RuntimeEntry(NamedTuple):
    """The package that a runtime needs, which its file in this room is called like; its class; and its extra."""

    package: str
    runtime: str
    extra: str


_CLASSES = {
    HostRuntime.ONNXRUNTIME: _RuntimeEntry("onnxruntime", "OnnxRuntime", "host"),
    HostRuntime.OPENVINO: _RuntimeEntry("openvino", "OpenVino", "openvino"),
}


def installed() -> tuple[HostRuntime, ...]:
    """The runtimes whose packages are installed; nothing is imported."""
    return tuple(name for name in HostRuntime if find_spec(_CLASSES[name].package) is not None)


@cache
def installed_versions() -> str:
    """The versions of the installed runtimes, on which measured times depend.

    Raises:
        MissingExtra: there is none.
    """
    if not installed():
        raise missing_extra("running on the host", "host")
    return ", ".join(f"{name} {_version(_CLASSES[name].package)}" for name in installed())


def _version(package: str) -> str:
    """By the metadata, which takes no time, or else by the package: it may come from a distribution of another name."""
    try:
        return version(package)
    except PackageNotFoundError:
        return str(import_module(package).__version__)


def check_installed(name: HostRuntime) -> None:
    """Refuse a runtime that is not installed; nothing is imported.

    Raises:
        MissingExtra: it is not installed.
    """
    if name not in installed():
        raise missing_extra(f"--runtime {name}", _CLASSES[name].extra)


@cache
def runtime_named(name: HostRuntime) -> Runtime:
    """A runtime; its package is imported.

    Raises:
        MissingExtra: it is not installed.
    """
    check_installed(name)
    entry = _CLASSES[name]
    made: Runtime = getattr(import_module(f"autoauto.targets.host.runtimes.{entry.package}"), entry.runtime)()
    return made
