"""A row per cluster for the same load: `clusters_table`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from autoauto.records.target import Origin
from autoauto.report.tables.columns import value_text
from autoauto.report.tables.table import Column, Table, Value
from autoauto.report.wording import configuration, has_groups, serving_text, speed_of, time_text
from autoauto.space.numbers import MAX_JOULES, USD_PER_MILLION
from autoauto.space.objectives import Objective
from autoauto.space.trial import Trial


class ClusterAnswer(NamedTuple):
    """The answer of a search on one cluster, or the reason why nothing fits and meets the bounds."""

    cluster: str
    best: Trial | None
    origin: Origin
    study_name: str
    reason: str = ""


def ranked_answers(answers: Sequence[ClusterAnswer], objective: Objective) -> list[ClusterAnswer]:
    """The best first; of the fewest devices the lowest price of an hour, where all that are used have one."""
    by_price = _is_by_price(answers, objective)

    def rank(answer: ClusterAnswer) -> tuple[bool, float]:
        if answer.best is None:  # clusters without an answer come last
            return True, 0.0
        price = answer.best.result.devices.usd_per_hour
        if by_price and price is not None:
            return False, price
        return False, -objective.score(objective.of(answer.best))

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
    rows: list[tuple[Value, ...]] = []
    for answer in answers:
        values = (None,) * (len(columns) - 2) if answer.best is None else _values(answer.best)
        name = "none"
        if answer.best is not None:
            name = configuration(answer.best.knobs)
            if has_groups(answer.best.knobs):  # in two lines, the second of which has the group of GPUs
                engine, _, groups = serving_text(answer.best.knobs).partition(" TP")
                name = f"{engine}\nTP{groups}"
        rows.append((answer.cluster, name, *values))
    hidden = [column.words for index, column in enumerate(columns) if not any(row[index] for row in rows)]
    by: str = objective
    if _is_by_price(answers, objective):
        by = "price of the fewest devices"
    else:
        hidden.append("USD an hour")
    origins = " and ".join(dict.fromkeys(answer.origin for answer in answers))
    reasons = [f"{answer.cluster}: {answer.reason}" for answer in answers if answer.reason]
    return Table(f"Clusters by {by}, {origins}", columns, tuple(rows), "\n".join(reasons)).without(*hidden)


def _values(best: Trial) -> tuple[Value, ...]:
    tokens, derived = best.tokens, best.result.derived
    interval = None
    if tokens.tokens_per_s_ends is not None:
        low, high = tokens.tokens_per_s_ends
        interval = f"{speed_of(low)} to\n{speed_of(high)}"
    return (
        str(best.knobs.n_devices),
        speed_of(best.samples_per_s),
        interval,
        time_text(tokens.tpot_s) if tokens.tpot_s else None,
        time_text(tokens.ttft_s) if tokens.ttft_s else None,
        value_text(best.result.devices.usd_per_hour),
        value_text(derived.get(USD_PER_MILLION)),
        value_text(derived.get(MAX_JOULES)),
    )
