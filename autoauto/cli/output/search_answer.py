"""The answer of a search that the server keeps: what `search --json` prints, and the lines without it."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from autoauto.cli.output.busy import describe_busy
from autoauto.cli.output.search_result import (
    describe_best,
    describe_comparisons,
    describe_result,
    describe_speed,
    show_result,
)
from autoauto.space.table import own_values

if TYPE_CHECKING:
    from autoauto.evaluate.flow import Flow
    from autoauto.space.requests.request import SearchRequest
    from autoauto.space.trial import Trial
    from autoauto.study.run import SearchResult


def describe_answer(flow: Flow, request: SearchRequest, result: SearchResult, search_id: str) -> dict[str, Any]:
    """The result of a search as plain values, without its database, and under `lines` what the command prints."""
    from autoauto.study.run import nothing_fits

    assert result.summary is not None
    lines = io.StringIO()
    with redirect_stdout(lines):
        show_result(flow, result, result.summary, request.study.objectives)
    described = describe_result(result, None, flow) | {"search": search_id} | describe_busy(flow)
    if result.best is not None:
        described |= describe_comparisons(result.summary)
    if request.study.time_budget_s:
        described["out_of_time"] = result.out_of_time
    exit_code = 0 if result.front else nothing_fits(result).exit_code
    return described | {"lines": lines.getvalue(), "exit_code": exit_code}


def describe_best_so_far(best: Trial) -> dict[str, Any]:
    """The best so far as plain values, as `describe_best` has them; without its stages where they are not loaded."""
    if best.measured is not None:
        return describe_best(best)
    return {
        **own_values(best.knobs),
        **describe_speed(best),
        "value": best.values[0],
        "values": list(best.values),
        "trial": best.number,
    }
