"""What a command prints, as a value: `run_command`, for the server, which runs commands for its clients."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout

from autoauto.cli.output.lines import warn
from autoauto.records.files.uploads import uploads_called
from autoauto.server.work.commands import Printed


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
