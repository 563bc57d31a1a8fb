"""Knobs in a search file: values, lists, ranges, and the words that say how they are searched."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from autoauto.cli.search_config import read_knobs
from autoauto.records.errors import BadInput
from autoauto.records.files.toml import TomlFile
from autoauto.records.schedule import Order
from autoauto.space.knobs import Knobs
from autoauto.space.modes.mode import Strategy
from autoauto.space.objectives import Method
from autoauto.space.space import SearchSpace
from autoauto.space.table import COLUMNS, KNOBS, flat


def read(knobs: str, method: str = "") -> tuple[dict[str, tuple[Any, ...]], Method | None]:
    text = (f'method = "{method}"\n' if method else "\n") + f"[knobs]\n{knobs}"
    return read_knobs(TomlFile(tomllib.loads(text), "search.toml", text))


def test_every_knob_of_the_space_is_known() -> None:
    assert [knob.name for knob in KNOBS] == [name for name, _ in SearchSpace().pairs]
    assert {knob.name for knob in COLUMNS} == flat(Knobs()).keys()


@pytest.mark.parametrize(
    ("knob", "values"),
    [
        ("n_ipu = 2", (2,)),
        ("n_ipu = [4, 1]", (4, 1)),
        ("n_ipu = { from = 1, to = 4 }", (1, 2, 3, 4)),
        ("batch_size = { from = 16, to = 50, step = 16 }", (16, 32, 48)),
        ("n_ipu = { fixed = 2 }", (2,)),
        ("n_ipu = { grid = { from = 1, to = 2 } }", (1, 2)),
        ("memory_proportion = 1", (1.0,)),
        ("memory_proportion = { from = 0.1, to = 0.3, step = 0.1 }", (0.1, 0.2, 0.3)),
        ('schedule = ["1f1b", "gpipe"]', (Order.ONE_F_ONE_B, Order.GPIPE)),
        ('strategy = "phased"', (Strategy.PHASED,)),
        ("recompute = [false, true]", (False, True)),
    ],
)
def test_values(knob: str, values: tuple[Any, ...]) -> None:
    [parsed] = read(knob)[0].values()
    assert parsed == values
    assert list(map(type, parsed)) == list(map(type, values))


@pytest.mark.parametrize(
    ("knobs", "named", "method"),
    [
        ("n_ipu = 2", "", None),
        ("n_ipu = 2", "tpe", Method.TPE),
        ("n_ipu = { grid = [1, 2] }", "", None),
        ("batch_size = { bisect = { from = 1, to = 64 } }\nn_ipu = { grid = [1, 2] }", "", Method.GRID_BISECT),
        ("batch_size = { bisect = [1, 2] }", "grid-bisect", Method.GRID_BISECT),
        ("batch_size = { sampled = [1, 2] }\nn_ipu = { fixed = 1 }", "", Method.TPE),
        ("batch_size = { sampled = [1, 2] }", "random", Method.RANDOM),
    ],
)
def test_words_choose_the_method_where_none_is_named(knobs: str, named: str, method: Method | None) -> None:
    assert read(knobs, named)[1] is method


def test_each_value_is_tried_once_and_batch_sizes_ascend() -> None:
    values, _ = read("n_ipu = [2, 1, 2]\nbatch_size = [2, 1]")
    assert values == {"n_ipu": (2, 1), "batch_size": (1, 2)}


@pytest.mark.parametrize(
    ("knobs", "named", "line", "message"),
    [
        ("n_ipus = 2", "", 3, "did you mean 'n_ipu'?"),
        ("n_ipu = 0", "", 3, "n_ipu must be a whole number from 1 to 100,000, got 0"),
        ("n_ipu = [\n 1,\n 0,\n]", "", 5, "got 0"),
        ("n_ipu = 1.0", "", 3, "got 1.0"),
        ("n_ipu = true", "", 3, "got True"),
        ('n_ipu = "2"', "", 3, "got '2'"),
        ("n_ipu = []", "", 3, "n_ipu takes 1 to 100,000 values, got 0"),
        ("memory_proportion = 1.5", "", 3, "at most 1, or one for each device, 0.15:0.25, got 1.5"),
        ('schedule = "grouped"', "", 3, "schedule must be one of popart"),
        ("recompute = { from = 1, to = 2 }", "", 3, 'true, false or "auto", or a list, got a range'),
        ("n_ipu = { from = 1 }", "", 3, "it lacks 'to'"),
        ("n_ipu = { from = 1, to = 2, by = 1 }", "", 3, "there is no 'by' in a range"),
        ("n_ipu = { from = 2, to = 1 }", "", 3, "got none from 2 to 1"),
        ("memory_proportion = { from = 0.1, to = 0.3, step = 1e-320 }", "", 3, "got more from 0.1 to 0.3"),
        ("[knobs.n_ipu]\nfrom = 1\nto = 4\nstep = 0", "", 6, "step must be a whole number, above 0, got 0"),
        ("memory_proportion = { from = 0.1, to = 0.3 }", "", 3, "needs a step"),
        ("n_ipu = { fixed = [1, 2] }", "", 3, "a fixed n_ipu has one value, got 2"),
        ("n_ipu = { search = [1, 2] }", "", 3, "or one of fixed, grid, bisect, sampled, got search"),
        ("n_ipu = { fixed = 1, grid = [1, 2] }", "", 3, "got fixed, grid"),
        ("n_ipu = {}", "", 3, "got nothing"),
        ("n_ipu = { bisect = [1, 2] }", "", 3, "only batch_size is bisected"),
        ("batch_size = { bisect = [1, 2] }", "guided", 3, "the method guided has no knob bisect"),
        ("batch_size = { bisect = [1, 2] }", "tpe", 3, "the method tpe samples every knob"),
        ("n_ipu = { sampled = [1, 2] }", "guided", 3, "the method guided has no knob sampled"),
        ("n_ipu = { grid = [1, 2] }", "tpe", 3, "cannot be grid: the method tpe samples every knob"),
        ("batch_size = { grid = [1, 2] }", "grid-bisect", 3, "the method grid-bisect bisects it"),
        (
            "batch_size = { bisect = [1, 2] }\nn_ipu = { sampled = [1, 2] }",
            "",
            4,
            "grid-bisect, which batch_size chooses",
        ),
    ],
)
def test_mistakes_are_reported_with_their_line(knobs: str, named: str, line: int, message: str) -> None:
    with pytest.raises(BadInput) as refused:
        read(knobs, named)
    assert str(refused.value).startswith(f"search.toml, line {line}: "), refused.value
    assert message in str(refused.value)


def test_knobs_are_a_table() -> None:
    with pytest.raises(BadInput, match="line 1: knobs must be a table"):
        read_knobs(TomlFile({"knobs": 1}, "search.toml", "knobs = 1"))
