"""Where a study's measured numbers come from."""

from __future__ import annotations

from autoauto.records.findings import Contender, Findings
from autoauto.report.style import REALLY_MEASURED, measured_by


def origin_of(found: Findings) -> str:
    """What a measured number of the study is called."""
    return measured_by(found.attributes.get("target", "ipu"))


def really_ran(found: Findings) -> bool:
    """Whether devices ran the plans, so that their periods were measured and are not sums of cycles."""
    return origin_of(found) == REALLY_MEASURED


def clock_of(found: Findings, contender: Contender) -> float | None:
    """The clock that cycles count; None when devices ran the plan: its own cycles then do not tell its throughput."""
    return None if really_ran(found) else contender.clock_hz


def period_text(found: Findings, contender: Contender) -> str:
    """How long a micro-batch takes once the pipeline is full, or all phases."""
    tried = contender.tried
    if really_ran(found):
        return f"{1e3 * tried.knobs.n_samples / tried.samples_per_s:,.3f} ms, {origin_of(found)}"
    return f"{contender.measured.cost_cycles:,} cycles, {origin_of(found)}"
