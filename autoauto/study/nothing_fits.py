"""The error of a search that has no answer, `nothing_fits`."""

from __future__ import annotations

from autoauto.records.errors import BadInput, Infeasible
from autoauto.space.table import flat_value, shown
from autoauto.space.trial import Status
from autoauto.study.run import SearchResult


def nothing_fits(result: SearchResult) -> Infeasible | BadInput:
    """The error of a search in whose space nothing fits, with the configuration that is nearest to its constraints.

    Where no runtime runs the model, it has the reason of each.
    """
    record = result.summary.engine_measurements if result.summary else None
    if record is not None and record.n_measured:
        rows = [row for row in record.rows if row.is_measured]
        broken = "; ".join(dict.fromkeys(row.reason for row in rows if row.reason))
        return Infeasible(f"none of {len(rows)} measured configurations is known to keep the bounds: {broken}", 0)
    trials = [trial for cell in result.cells for trial in cell.trials]
    if trials and all(trial.status is Status.UNSUPPORTED for trial in trials):
        reasons = list({trial.knobs.session: trial.reason for trial in trials}.values())
        return BadInput(f"no runtime of the search runs the model: {'; '.join(dict.fromkeys(reasons))}")
    running = [trial for trial in trials if trial.runs]
    if result.out_of_time and not running:
        return Infeasible(
            f"the time budget ended before a configuration fitted, {len(trials):,} tried; try a longer one", 0
        )
    if not running:
        firsts = [cell.trials[0] for cell in result.cells[::-1] if cell.trials[0].status is not Status.UNSUPPORTED]
        firsts.sort(key=lambda trial: trial.knobs.is_phased)  # phases are refused where no device lacks memory
        first = next(iter(firsts), None)  # rows of a database that somebody edited may leave none
        reason = (
            "no trial of the study counts; try another --study-name"
            if first is None
            else f"the smallest batch size: {first.reason}"
        )
        return Infeasible(f"no configuration fits; {reason}", 0)
    nearest = min(running, key=lambda trial: trial.violation)
    values = ", ".join(f"{knob.name} {flat_value(nearest.knobs, knob.name)}" for knob in shown(nearest.knobs))
    return Infeasible(f"no configuration fits; the nearest that was tried is {values}: {nearest.reason}", 0)
