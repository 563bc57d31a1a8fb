"""The notebook runs from its start, and shows what it showed."""

import nbformat
import pytest

from studies.notebook import PATH, differing, shown_outputs
from tests.studies.conftest import RunScript


@pytest.mark.slow
def test_the_notebook_shows_what_is_stored(run_script: RunScript) -> None:
    assert run_script("notebook", "--check") == []


def test_every_cell_has_an_output_that_names_no_machine() -> None:
    notebook = nbformat.read(PATH, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in cells)
    assert not any(
        "text/plain" in output.get("data", {}) and "text/html" in output.data
        for cell in cells
        for output in cell.outputs
    )


def test_another_output_is_named_by_its_cell() -> None:
    stored = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("a\nb"), nbformat.v4.new_code_cell("c")])
    again = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("a\nb"), nbformat.v4.new_code_cell("c")])
    assert differing(stored, again) == []
    again.cells[0].outputs = [nbformat.v4.new_output("stream", text="1")]
    assert differing(stored, again) == ["a"]


def test_text_that_stderr_has_cut_is_one_output() -> None:
    texts = ("stdout", "a\n"), ("stderr", "a warning"), ("stdout", "b\n"), ("stdout", "c\n")
    outputs = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in texts]
    assert [output.text for output in shown_outputs(outputs)] == ["a\nb\nc\n"]
