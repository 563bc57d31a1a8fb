"""By what a search was run."""

import platform
import subprocess
from pathlib import Path

from autoauto.search.conditions import git_state, machine, provenance


def test_versions_and_machine_are_told() -> None:
    told = provenance(("numpy", "no-such-package"))
    assert told["python"] == platform.python_version()
    assert set(told) - {"git"} == {"python", "numpy", "machine"}
    assert told["machine"] == machine()
    assert platform.node() not in machine()


def test_a_checkout_is_told_with_what_was_changed(tmp_path: Path) -> None:
    assert git_state(tmp_path) is None
    name = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), (*name, "commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    state = git_state(tmp_path)
    assert state is not None
    commit, _, rest = state.partition(", ")
    assert (len(commit), rest) == (40, "clean")
    (tmp_path / "new.py").write_text("1")
    assert git_state(tmp_path) == f"{commit}, changed since"
    (tmp_path / "below").mkdir()
    assert git_state(tmp_path / "below") is None
