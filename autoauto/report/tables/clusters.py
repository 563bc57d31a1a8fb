"""A row per cluster for the same load: `clusters_table`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autoauto.records.target import Origin
from autoauto.report.tables.table import Column, Table, Value
from autoauto.report.tables.trials import value_text
from autoauto.report.wording import configuration, has_groups, serving_text, speed_of, time_text
from autoauto.space.numbers import MAX_JOULES, USD_PER_MILLION
from autoauto.space.objectives import Objective
from autoauto.space.trial import Trial


class ClusterAnswer(NamedTuple):
    """What a search of a cluster answered.

    Attributes:
        cluster: its name.
        best: with its plan; None where nothing fits and meets the bounds.
        origin: of its numbers.
        study_name: of the search, which `explain` explains.
        reason: why there is none.
    """

    cluster: str
    best: Trial | None
    origin: Origin
    study_name: str
    reason: str = ""


def ranked_answers(answers: Sequence[ClusterAnswer], objective: Objective) -> list[ClusterAnswer]:
    """The best first; of the fewest devices the lowest price of an hour, where all that are used have one."""
    by_price = _is_by_price(answers, objective)

    def rank(answer: ClusterAnswer) -> tuple[bool, float]:
        if answer.best is None:
            return True, 0.0
        price = answer.best.result.devices.usd_per_hour if by_price else None
        return False, -objective.score(objective.of(answer.best)) if price is None else price

    return sorted(answers, key=rank)


def _is_by_price(answers: Sequence[ClusterAnswer], objective: Objective) -> bool:
    """True where each is as few devices as suffice, whose prices compare what their numbers do not."""
    prices = [answer.best.result.devices.usd_per_hour for answer in answers if answer.best is not None]
    return objective is Objective.DEVICES and None not in prices


def clusters_table(answers: Sequence[ClusterAnswer], objective: Objective) -> Table:
    """The best configuration of every cluster, in the given order; columns that no row has are left out.

    The price of an hour is there where rows are in its order.

    Prices and energies are of the devices that a configuration uses, which may be fewer than the cluster has; a row is
    of as many replicas as the search chose, and of a cost or an energy a sample more replicas change nothing.
    """
    answered = [answer.best for answer in answers if answer.best is not None]
    sample = answered[0].knobs.mode.sample if answered else "sample"
    columns = (
        Column("cluster"),
        Column("best"),
        Column("used", "number"),
        Column(f"{sample}s/s", "number"),
        Column("8 of 10\nlie in", "number"),
        Column("TPOT", "number"),
        Column("TTFT", "number"),
        Column("USD an\nhour", "number"),
        Column(f"USD a M\n{sample}s", "number"),
        Column(f"J a {sample}\nat most", "number"),
    )
    by_price = _is_by_price(answers, objective)
    rows = [_row(answer, with_hour=by_price) for answer in answers]
    empty = [column.words for index, column in enumerate(columns) if not any(row[index] for row in rows)]
    origins = " and ".join(dict.fromkeys(answer.origin for answer in answers))
    reasons = [f"{answer.cluster}: {answer.reason}" for answer in answers if answer.reason]
    by = "price of the fewest devices" if by_price else objective
    table = Table(f"Clusters by {by}, {origins}", columns, tuple(rows), "\n".join(reasons))
    return table.without(*empty)


def _row(answer: ClusterAnswer, *, with_hour: bool) -> tuple[Value, ...]:
    best = answer.best
    if best is None:
        return (answer.cluster, "none", *[None] * 8)
    words = configuration(best.knobs)
    if has_groups(best.knobs):
        engine, _, groups = serving_text(best.knobs).partition(" TP")
        words = f"{engine}\nTP{groups}"
    ends, derived = best.tokens.tokens_per_s_ends, best.result.derived
    return (
        answer.cluster,
        words,
        str(best.knobs.n_devices),
        speed_of(best.samples_per_s),
        None if ends is None else f"{speed_of(ends[0])} to\n{speed_of(ends[1])}",
        time_text(best.tokens.tpot_s) if best.tokens.tpot_s else None,
        time_text(best.tokens.ttft_s) if best.tokens.ttft_s else None,
        value_text(best.result.devices.usd_per_hour) if with_hour else None,
        value_text(derived.get(USD_PER_MILLION)),
        value_text(derived.get(MAX_JOULES)),
    )
