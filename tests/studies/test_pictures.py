"""The pictures of README show what the report shows now."""

import json

import pytest

from studies.pictures import FOLDER, MAX_BYTES, shown
from tests.studies.conftest import ROOT, RunScript

STORED = json.loads((FOLDER / "pages.json").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_pages_are_those_of_the_pictures(run_script: RunScript) -> None:
    assert run_script("pictures", "--check") == []


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_readme_shows_a_small_picture_in_both_themes(name: str, theme: str) -> None:
    path = FOLDER / f"{name}-{theme}.png"
    assert f'="{path.relative_to(ROOT)}"' in README
    assert 0 < path.stat().st_size < MAX_BYTES


def test_the_picture_of_the_report_has_the_answer_of_readme() -> None:
    first_line = README.partition("--study-name first\n")[2].partition("\n")[0]
    assert first_line.startswith(f"{STORED['report']['answer']} samples/s ")


@pytest.mark.parametrize(
    ("page", "is_same"),
    [
        ('<body><div class="big">7 <b>x</b></div>', True),
        ('<body><div class="big">7 <b>other words</b></div>', True),
        ('<body><div class="big">8 <b>x</b></div>', False),
        ('<body><div class="big">7 <i>x</i></div>', False),
        ('<body><div class="big new">7 <b>x</b></div>', False),
    ],
)
def test_another_answer_or_structure_is_a_change(page: str, is_same: bool) -> None:
    before = shown('<body><div class="big">7 <b>x</b></div>')
    assert (shown(page) == before) is is_same
