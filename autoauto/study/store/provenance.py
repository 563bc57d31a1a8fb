"""Where the trials of a study come from: versions, the state of the checkout, and the machine: `provenance`."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from autoauto.records.units import format_bytes
from autoauto.space.sessions import RUNTIME_PACKAGES

PACKAGES = ("numpy", "optuna", *RUNTIME_PACKAGES)
_GIT_S = 10.0  # a file system that hangs must not stop a search


def provenance(packages: tuple[str, ...] = PACKAGES) -> dict[str, str]:
    """Versions, the state of autoauto's checkout when it runs from one, and the machine without its name."""
    attributes = {"python": platform.python_version(), "machine": machine()}
    for package in packages:
        try:
            attributes[package] = version(package)
        except PackageNotFoundError:
            continue
    state = git_state(Path(__file__).parents[3])
    if state is not None:
        attributes["git"] = state
    return attributes


def machine() -> str:
    """System, processor, cores that this process may use, and memory."""
    n_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    n_cores = len(os.sched_getaffinity(0))
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    processor = next(names, platform.processor() or "unknown processor")
    return f"{platform.system()} {platform.machine()}, {processor}, {n_cores} cores, {format_bytes(n_bytes)}"


def git_state(root: Path) -> str | None:
    """The commit of a checkout and whether its files were changed since; None without a checkout or without git.

    A checkout that contains `root` does not count: an installation below another project is not part of it.
    """
    if not (root / ".git").exists():
        return None
    commit, changed = (_git(root, *arguments) for arguments in (("rev-parse", "HEAD"), ("status", "--porcelain")))
    if not commit:
        return None
    return f"{commit}, {'changed since' if changed else 'clean'}"


def _git(root: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(root), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
