"""Run docs/notebook.ipynb from its start, in an empty folder: `python studies/notebook.py [--check]`.

Its outputs are written into it; with `--check` they are compared, and the cells that show something else are named.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

PATH = Path(__file__).parents[1] / "docs" / "notebook.ipynb"


def executed(notebook: Any) -> Any:
    """The notebook with the outputs of a kernel of its own.

    Raises:
        CellExecutionError: a cell has failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=300, record_timing=False, resources={"metadata": {"path": folder}})
        client.execute()
    notebook.metadata.pop("language_info", None)  # the version of the Python that ran it
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = shown_outputs(cell.outputs)
    return notebook


def shown_outputs(outputs: list[Any]) -> list[Any]:
    """The outputs of a cell without what went to stderr; text that a message on stderr has cut is one text again."""
    shown: list[Any] = []
    for output in outputs:
        if output.get("name") == "stderr":
            continue
        # a slow machine flushes stdout more than once, and stderr comes in between
        if shown and output.get("name") == "stdout" == shown[-1].get("name"):
            shown[-1].text += output.text
        else:
            shown.append(_shown(output))
    return shown


def _shown(output: Any) -> Any:
    """What a notebook shows of an output: of a record its HTML, without its text, which names this machine."""
    if "text/html" in output.get("data", {}):
        output.data.pop("text/plain", None)
    return output


def differing(notebook: Any, other: Any) -> list[str]:
    """The first lines of the cells whose outputs differ."""
    pairs = zip(notebook.cells, other.cells, strict=True)
    return [cell.source.partition("\n")[0] for cell, again in pairs if cell.get("outputs") != again.get("outputs")]


def main() -> int:
    """Write the outputs, or check them.

    Returns:
        1 when a cell shows something else.
    """
    stored, again = nbformat.read(PATH, as_version=4), executed(nbformat.read(PATH, as_version=4))
    if "--check" not in sys.argv[1:]:
        nbformat.write(again, PATH)
        return 0
    for line in (lines := differing(stored, again)):
        print(f"run studies/notebook.py, and look at the outputs of: {line}")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
