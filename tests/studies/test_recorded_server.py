"""Replays of recorded trials by hand, and the program on published ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autoauto.records.errors import BadInput
from studies.recorded_server import read_recorded, replay, shares

PUBLISHED = Path(__file__).parents[2] / "studies" / "recorded"
ROWS = """engine,batch_size,draft,tokens_per_s{}
a,8,,100{}
b,64,,101{}
a,64,yes,200{}
b,8,yes,{}
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_columns_are_numbers_or_words_and_failures_have_no_rate(tmp_path: Path) -> None:
    recorded = read_recorded(written(tmp_path / "a.csv", ROWS.format("", "", "", "", "")))
    assert recorded.rates.tolist() == [100, 101, 200, 0]
    assert recorded.coordinates[:, 0] * 3.5 == pytest.approx([3, 6, 6, 3])
    assert recorded.labels.tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert not recorded.has_forecasts


def test_the_rule_measures_every_row_once_and_a_failure_takes_its_turn(tmp_path: Path) -> None:
    recorded = read_recorded(written(tmp_path / "a.csv", ROWS.format("", "", "", "", "")))
    order = replay(recorded, 9)
    assert sorted(order) == [0, 1, 2, 3]
    assert shares(recorded, [0, 3, 2]) == [0.5, 0.5, 1.0]


def test_forecasts_say_what_is_measured_first(tmp_path: Path) -> None:
    text = ROWS.format(",forecast_tokens_per_s", ",90", ",95", ",180", ",60")
    assert replay(read_recorded(written(tmp_path / "a.csv", text)), 1) == [2]


def test_a_file_without_rates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="must have rows with tokens_per_s"):
        read_recorded(written(tmp_path / "a.csv", "engine,tokens_per_s\na,\n"))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rows"), [("polyserve_a40", "26 rows, 4 failed"), ("polyserve_a100", "22 rows, 0")])
def test_of_published_trials_the_rule_finds_more_than_chance(
    name: str, rows: str, run_script: Callable[..., list[str]]
) -> None:
    lines = run_script("recorded_server", "--rows", str(PUBLISHED / f"{name}.csv"), "--orders", "100")
    assert lines[0].startswith(rows)
    by_rule, by_chance = (float(line.rsplit(": ", 1)[1].split()[-2].rstrip("%")) for line in lines[2:4])
    assert by_rule > by_chance + 2
