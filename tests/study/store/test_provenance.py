"""Versions, the machine and the state of a checkout, as a study stores them."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

from autoauto.study.store.provenance import git_state, machine, provenance


def test_versions_and_the_machine_without_its_name_are_stored() -> None:
    attributes = provenance(("numpy", "no-such-package"))
    assert attributes["python"] == platform.python_version()
    assert set(attributes) - {"git"} == {"python", "numpy", "machine"}
    assert attributes["machine"] == machine()
    assert platform.node() not in machine()


def test_the_state_of_a_checkout_is_its_commit_and_whether_files_changed(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), (*identity, "commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", "-C", str(tmp_path), *arguments], check=True)
    state = git_state(tmp_path)
    assert state is not None
    commit, _, rest = state.partition(", ")
    assert (len(commit), rest) == (40, "clean")
    (tmp_path / "new.py").write_text("1")
    assert git_state(tmp_path) == f"{commit}, changed since"
    (tmp_path / "below").mkdir()
    assert git_state(tmp_path / "below") is None
