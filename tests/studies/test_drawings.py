"""The drawings of the concepts are those that the charts draw now."""

from pathlib import Path

import pytest

from tests.studies.conftest import ROOT, RunScript

DRAWINGS = ROOT / "docs" / "drawings"
MAX_BYTES = 30_000


@pytest.mark.slow
def test_the_drawings_are_those_that_the_script_makes(run_script: RunScript, tmp_path: Path) -> None:
    assert run_script("drawings", str(tmp_path / "made")) == ["9 drawings"]
    made, stored = (
        {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.svg")}
        for folder in (tmp_path / "made", DRAWINGS)
    )
    assert [name for name in made | stored if made.get(name) != stored.get(name)] == [], "run studies/drawings.py"


def test_the_drawings_are_small_and_the_concepts_show_all() -> None:
    concepts = (DRAWINGS.parent / "concepts.md").read_text(encoding="utf-8")
    drawings = sorted(DRAWINGS.glob("*.svg"))
    assert [path.name for path in drawings if f"](drawings/{path.name})" not in concepts] == []
    assert max(path.stat().st_size for path in drawings) < MAX_BYTES
