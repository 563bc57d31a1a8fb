"""The heat map: the best of every n_ipu and memory proportion."""

from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

from autoauto.records.schedule import Order
from autoauto.report.charts import study as picture
from autoauto.space.knobs import Knobs
from autoauto.space.study_summary import StudySummary
from tests.report.made import made

Elements = Callable[..., list[ElementTree.Element]]


def test_each_row_and_column_has_its_best(summary: StudySummary) -> None:
    grid = picture.heat_map(summary)
    assert (grid.rows, grid.columns) == (("1", "2"), (0.6, 1.0))
    numbers = {key: trial and trial.number for key, trial in grid.best.items()}
    assert numbers == {("1", 0.6): 0, ("2", 0.6): 3, ("2", 1.0): None}


def test_schedules_have_rows_of_their_own_up_to_a_number_of_rows(summary: StudySummary) -> None:
    orders = (Order.GPIPE, Order.ONE_F_ONE_B)
    grid = [(n, order) for n in range(1, 10) for order in orders]
    trials = [
        made(
            i,
            Knobs(n_ipu=n, memory_proportion=0.6, batch_size=1, schedule=order, recompute=False, n_micro_batches=32),
            1.0 + i,
        )
        for i, (n, order) in enumerate(grid)
    ]
    few, many = (picture.heat_map(replace(summary, trials=tuple(trials[:n]))) for n in (4, 18))
    assert few.rows == ("1 1f1b", "1 gpipe", "2 1f1b", "2 gpipe")
    assert many.rows == tuple("123456789")
    assert many.best["9", 0.6] == trials[-1]


def test_the_winner_has_a_frame_and_the_strongest_colour(summary: StudySummary, elements: Elements) -> None:
    chart = picture.heat_map_chart(summary)
    slow, winner = elements(chart, "heat")
    assert (slow.get("opacity"), winner.get("opacity")) == (".1", ".6")
    (frame,) = elements(chart, "ring")
    assert (frame.get("x"), frame.get("y")) == (winner.get("x"), winner.get("y")) != (slow.get("x"), slow.get("y"))
    assert [cell.text for cell in elements(chart, "cell")] == ["100", "200"]
    ticks = [tick.text for tick in elements(chart, "tick")]
    assert (ticks.count("none fits"), ticks.count("not tried")) == (1, 1)


def test_a_cell_says_what_it_stands_for(summary: StudySummary, elements: Elements) -> None:
    titles = [str(cell.findtext("title")) for cell in elements(picture.heat_map_chart(summary), "heat")]
    assert titles[1].replace("\xa0", " ") == "trial 3: n_ipu 2, memory proportion 0.6, batch 8, 200.0 samples/s"


def test_many_proportions_make_a_wide_picture(summary: StudySummary) -> None:
    trials = tuple(made(i, Knobs(n_ipu=1, memory_proportion=(i + 1) / 10, batch_size=1), 1.0) for i in range(10))
    many = replace(summary, trials=trials)
    widths = [picture.heat_map_chart(study).panels[0].width for study in (summary, many)]
    assert widths == [420, 40 + 7 + 10 * 76]


def test_small_throughputs_have_a_decimal(summary: StudySummary, elements: Elements) -> None:
    slow = replace(summary, trials=(summary.trials[0].with_values(samples_per_s=7.86), *summary.trials[1:]))
    assert [cell.text for cell in elements(picture.heat_map_chart(slow), "cell")] == ["7.9", "200"]


def test_rows_are_as_high_as_their_text_needs_and_no_higher(summary: StudySummary) -> None:
    (panel,) = picture.heat_map_chart(summary).panels
    assert panel.y.categories is not None
    assert panel.height == 76.0 * len(panel.y.categories)
