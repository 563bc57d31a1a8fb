"""Measured against forecast throughput of the configurations of engines that were started: `engines_chart`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoauto.records.target import Origin
from autoauto.report.charts.chart import RING, Axis, Chart, Mark, Panel, Series, Shape
from autoauto.report.charts.dots import colour
from autoauto.report.wording import counted, serving_text, speed_of
from autoauto.space.study_summary import StudySummary

if TYPE_CHECKING:
    from autoauto.space.engine_measurements import EngineRow

_WIDTH, _HEIGHT, _MARGIN = 420, 224, 1.06


def engines_chart(summary: StudySummary) -> Chart | None:
    """A dot per configuration that was measured, on the line where the forecast was exact; None without any."""
    record = summary.engine_measurements
    if record is None or not record.n_measured:
        return None
    rows = [row for row in record.rows if row.is_measured]
    forecasts = [row.forecast.tokens_per_s for row in rows]
    most = _MARGIN * max(*(each.middle for each in forecasts), *(row.tokens_per_s for row in rows))
    low = min(each.low / each.middle for each in forecasts)
    high = max(each.high / each.middle for each in forecasts)
    # Measured between `low` and `high` times the forecast: a sector from the origin, cut off at both ends of the axes.
    corners = (Mark(0.0, 0.0), Mark(most, low * most), Mark(most, most), Mark(most / high, most))
    series = [
        Series("", "tolerance", Shape.AREA, corners),
        Series("", "diagonal", Shape.LINE, (Mark(0.0, 0.0), Mark(most, most))),
    ]
    for index, engine in enumerate(sorted({str(row.knobs.values["engine"]) for row in rows})):
        marks = tuple(_mark(row) for row in rows if row.knobs.values["engine"] == engine)
        series.append(Series(engine, colour(index), Shape.DOT, marks))
    if record.best is not None:
        series.append(Series("", RING, Shape.DOT, (_mark(record.best),)))
    across = Axis(f"tokens/s, forecast ({Origin.MODELLED})", 0.0, most)
    up = Axis("tokens/s, measured", 0.0, most)
    panel = Panel("", across, up, tuple(series), _WIDTH, _HEIGHT)
    text = f"{counted(record.n_measured, 'configuration')} measured; the ring is the answer. The shaded area is the "
    text += "interval in which 80 % of measured rows lie by the error of forecasts."
    return Chart("engines", "Measured against forecast", text, (panel,))


def _mark(row: EngineRow) -> Mark:
    forecast = row.forecast.tokens_per_s.middle
    name = f"{serving_text(row.knobs)}: forecast {speed_of(forecast)}"
    return Mark(forecast, row.tokens_per_s, f"{name}, measured {speed_of(row.tokens_per_s)} tokens/s")
