"""A chart of tokens/s per GPU over tokens/s per user of a decoder: `users_chart`.

Larger batches give a GPU more and a user less; the line joins the configurations that no
other beats in both:

    tokens/s a GPU  ─┐ large batches
                     └──┐
                        └───┐ groups of several GPUs, small batches
                            tokens/s a user = 1 / TPOT
"""

from __future__ import annotations

from autoauto.records.units import format_number
from autoauto.report.charts.chart import Axis, Chart, Mark, Panel, Series, Shape
from autoauto.report.charts.dots import best_ring, trial_series
from autoauto.report.wording import configuration, trials_origin
from autoauto.space.study_summary import StudySummary
from autoauto.space.trial import Trial

_WIDTH, _HEIGHT, _MARGIN = 420, 234, 1.06


def users_chart(summary: StudySummary) -> Chart | None:
    """A chart of tokens/s per GPU against tokens/s per user; None if no trial generates text.

    Dots are the configurations that were tried; the front is that of the whole space, where the search surveyed it.
    """
    running = [trial for trial in summary.trials if trial.tokens.tpot_s and trial.runs]
    if not running:
        return None
    origin = trials_origin(summary)
    text = f"Dots are {origin}; the ring is the best configuration"
    front = []
    for point in summary.users_front:
        speeds = f"{format_number(point.of_gpu)} tokens/s a GPU, {format_number(point.of_user)} a user"
        hover = f"{configuration(point.knobs)}; {speeds}"
        front.append(Mark(point.of_user, point.of_gpu, hover))
    series = []
    if front:
        series.append(Series("", "front", Shape.LINE, tuple(front)))
        text += f"; the line joins the {len(front):,} configurations of the space that none beats in both"
    series += trial_series(running, _mark)
    marks = [*front, *map(_mark, running)]
    across = Axis(f"tokens/s a user, {origin}", 0.0, _MARGIN * max(mark.x for mark in marks))
    up = Axis(f"tokens/s a GPU, {origin}", 0.0, _MARGIN * max(mark.y or 0.0 for mark in marks))
    panel = Panel("", across, up, (*series, *best_ring(summary, _mark)), _WIDTH, _HEIGHT)
    return Chart("users", "Throughput a GPU against speed for a user", f"{text}.", (panel,))


def _mark(trial: Trial) -> Mark:
    of_gpu, of_user = trial.device_samples_per_s, 1.0 / trial.tokens.tpot_s
    speeds = f"{format_number(of_gpu)} tokens/s a GPU, {format_number(of_user)} a user"
    return Mark(of_user, of_gpu, f"trial {trial.number}: {configuration(trial.knobs)}; {speeds}")
