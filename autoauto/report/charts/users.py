"""What a GPU gives against what a user of a decoder gets: `users_chart`.

Both are tokens a second. Larger batches give a GPU more and a user less; the line joins the configurations that no
other beats in both:

    tokens/s a GPU  ─┐ large batches
                     └──┐
                        └───┐ groups of several GPUs, small batches
                            tokens/s a user = 1 / TPOT
"""

from __future__ import annotations

from autoauto.report.charts.chart import OTHER, RING, Axis, Chart, Mark, Panel, Series, Shape
from autoauto.report.wording import configuration, trials_origin, words_of
from autoauto.space.study_summary import StudySummary, UsersPoint
from autoauto.space.trial import Trial

_WIDTH, _HEIGHT, _MARGIN = 420, 234, 1.06
_N_COLOURS = 8


def users_chart(summary: StudySummary) -> Chart | None:
    """Tokens a second of a GPU against those of a user; None where no text is made.

    Dots are the configurations that were tried; the front is that of the whole space, where the search surveyed it.
    """
    running = [trial for trial in summary.trials if trial.tokens.tpot_s and trial.runs]
    if not running:
        return None
    fitting = [trial for trial in running if trial.fits]
    origin = trials_origin(summary)
    front = summary.users_front
    of_users = [*map(_of_user, running), *(point.of_user for point in front)]
    of_gpus = [*(trial.device_samples_per_s for trial in running), *(point.of_gpu for point in front)]
    across = Axis(f"tokens/s a user, {origin}", 0.0, _MARGIN * max(of_users))
    up = Axis(f"tokens/s a GPU, {origin}", 0.0, _MARGIN * max(of_gpus))
    broken = tuple(_mark(trial) for trial in running if not trial.fits)
    series = [Series("", "front", Shape.LINE, tuple(map(_point, front)))] if front else []
    series += [Series("breaks a constraint", OTHER, Shape.DOT, broken)] if broken else []
    called = words_of(trial.knobs for trial in running).name("n_ipu")
    for index, n_ipu in enumerate(sorted({trial.knobs.n_ipu for trial in fitting})):
        marks = tuple(_mark(trial) for trial in fitting if trial.knobs.n_ipu == n_ipu)
        series.append(Series(f"{called} {n_ipu}", f"s{index % _N_COLOURS}", Shape.DOT, marks))
    series += [Series("", RING, Shape.DOT, (_mark(winner),)) for winner in summary.finalists[:1]]
    line = f"; the line joins the {len(front):,} configurations of the space that none beats in both" if front else ""
    text = f"Dots are {origin}; the ring is the best configuration{line}."
    panel = Panel("", across, up, tuple(series), _WIDTH, _HEIGHT)
    return Chart("users", "Throughput a GPU against speed for a user", text, (panel,))


def _of_user(trial: Trial) -> float:
    assert trial.tokens.tpot_s
    return float(1.0 / trial.tokens.tpot_s)


def _point(point: UsersPoint) -> Mark:
    hover = f"{configuration(point.knobs)}; {point.of_gpu:,.1f} tokens/s a GPU, {point.of_user:,.1f} a user"
    return Mark(point.of_user, point.of_gpu, hover)


def _mark(trial: Trial) -> Mark:
    speeds = f"{trial.device_samples_per_s:,.1f} tokens/s a GPU, {_of_user(trial):,.1f} a user"
    hover = f"trial {trial.number}: {configuration(trial.knobs)}; {speeds}"
    return Mark(_of_user(trial), trial.device_samples_per_s, hover)
