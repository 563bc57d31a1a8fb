import argparse
import json

import pytest

from autoauto.cli.output.plans import show_infeasible
from autoauto.records.errors import OutOfMemory
from autoauto.records.layers import LayerRange
from tests.cli.conftest import RunCli


@pytest.mark.parametrize("as_json", [True, False])
def test_a_plan_that_does_not_fit_is_a_line_on_stderr_and_json_on_stdout(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    failure = OutOfMemory("too much", 5, LayerRange(1, 3), {"parameter": 9})
    assert show_infeasible(argparse.Namespace(json=as_json), failure) == 3
    out, err = capsys.readouterr()
    assert err == "autoauto: too much\n"
    if as_json:
        assert json.loads(out) == {
            "fits": False,
            "excess_bytes": 5,
            "layers": [1, 3],
            "memory_bytes": {"parameter": 9},
            "reason": "too much",
        }
    else:
        assert out == ""


@pytest.mark.parametrize("command", ["predict", "measure", "profile"])
def test_products_planned_without_the_bound_are_named_in_one_line(run_cli: RunCli, command: str) -> None:
    code, _, err = run_cli(command, "resnet50", "--batch-size", "16", "--memory-proportion", "0.01")
    assert code == 0
    assert err.count("\n") == 1
    assert "meets memory proportion 0.01, so the bound was dropped there" in err


def test_a_bound_that_is_met_prints_nothing(run_cli: RunCli) -> None:
    assert run_cli("predict", "resnet50", "--memory-proportion", "0.6").err == ""
