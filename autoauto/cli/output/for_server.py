"""Commands run for the server: `describe_answer` gives the answer of a search, `run_command` the output of any."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any

from autoauto.cli.output.busy import describe_busy
from autoauto.cli.output.lines import warn
from autoauto.cli.output.search_result import (
    describe_best,
    describe_comparisons,
    describe_result,
    describe_speed,
    show_result,
)
from autoauto.records.files.uploads import uploads_called
from autoauto.server.work.commands import Printed
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


def run_command(
    main: Callable[[list[str]], int], words: Sequence[str], columns: int | None, names: Mapping[str, str]
) -> Printed:
    """Run a command in this process.

    Args:
        words: behind `autoauto`.
        columns: of the terminal of its reader; None for none.
        names: of uploaded files by their digests, as the reader calls them.
    """
    os.environ.pop("AUTOAUTO_SERVER", None)  # its study is in the database here
    os.environ["COLUMNS"] = str(columns or "")
    stdout, stderr = io.StringIO(), io.StringIO()
    with redirect_stdout(stdout), redirect_stderr(stderr), uploads_called(names):
        try:
            code = main(list(words))
        except SystemExit as end:  # an argument that the parser does not take
            code = end.code if isinstance(end.code, int) else 2
        except Exception as error:  # noqa: BLE001 (whatever lies in the database, the next command runs)
            code = 2
            warn(f"the study must be one that this command can read, {type(error).__name__}: {error}; search it again")
    return Printed(code, stdout.getvalue(), stderr.getvalue())
