"""`autoauto schedule`; that orders and times are right is tested in tests/schedule, by the vectors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import RunCli

Vectors = Callable[[str], Any]


def simulate(run_cli: RunCli, order: str, **options: object) -> Any:
    """What `autoauto schedule --schedule ORDER --OPTION VALUE ... --json` prints."""
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    printed = run_cli("schedule", "--schedule", order, *words, "--json")
    assert (printed.code, printed.err) == (0, "")
    return json.loads(printed.out)


def test_1f1b_of_4_devices_has_the_textbook_numbers(run_cli: RunCli) -> None:
    record = simulate(run_cli, "1f1b", stages=4, n_micro_batches=8, forward_cycles=1, backward_cycles=2)
    assert record["makespan_cycles"] == 33
    assert record["bubble_cycles"] == [9, 9, 9, 9]
    assert record["bubble_fraction"] == pytest.approx(3 / 11)
    assert record["idle_gaps"][0] == [[4, 6], [24, 1], [27, 1], [30, 1]]  # start and length
    assert (record["peak_in_flight"], record["stash_entries"]) == ([4, 3, 2, 1], [4, 3, 2, 0])
    assert record["programs"][3][:4] == ["3F0", "3B0", "3F1", "3B1"]
    assert (record["ideal_cycles"], record["period_cycles"], record["source"]) == (24, 3, "simulated")


@pytest.mark.parametrize("order", ["interleaved", "zbv"])
def test_cycles_are_those_of_all_chunks_of_a_device(run_cli: RunCli, order: str) -> None:
    costs = {"forward_cycles": 4, "backward_cycles": 4, "weight_cycles": 4}
    record = simulate(run_cli, order, stages=2, n_micro_batches=4, **costs)
    assert record["busy_cycles"] == [4 * (4 + 4 + 4)] * 2


def test_popart_counts_its_pipeline_cycles(run_cli: RunCli) -> None:
    record = simulate(run_cli, "popart", stages=3, n_micro_batches=5)
    assert (record["n_pipeline_cycles"], record["stash_entries"]) == (9, [5, 3, 0])


def test_poplars_orders_run_as_traced(run_cli: RunCli, vectors: Vectors) -> None:
    names = {"Interleaved": "poplar-interleaved", "Sequential": "sequential", "Grouped": "grouped"}
    for case in vectors("tf_poplar_schedules")["execution_order_traces"]:
        record = simulate(
            run_cli,
            names[case["schedule"]],
            stages=len(case["stage_to_ipu"]) // 2,
            stage_to_device=",".join(map(str, case["stage_to_ipu"])),
            n_micro_batches=case["gradient_accumulation"],
        )
        assert record["execution_order"] == case["stage_print_order"]
        assert record["n_pipeline_cycles"] == case["n_timesteps"]


def test_inference_is_an_assembly_line(run_cli: RunCli, vectors: Vectors) -> None:
    case = vectors("fake_api")["vectors_computed"][-1]
    record = simulate(run_cli, "inference", stages=case["devices"], n_micro_batches=case["requests"])
    assert record["n_pipeline_cycles"] == record["makespan_cycles"] == case["cycles_lockstep"]
    assert record["latency_cycles"] == case["latency_cycles_per_request"]
    assert [len(program) for program in record["programs"]] == [case["requests"]] * case["devices"]


def test_cycles_may_differ_by_device_and_be_decimals(run_cli: RunCli) -> None:
    record = simulate(run_cli, "inference", stages=3, n_micro_batches=4, forward_cycles="1,2.5,0.5", comm_cycles=0.1)
    assert record["makespan_cycles"] == pytest.approx(1 + 0.1 + 4 * 2.5 + 0.1 + 0.5)
    assert record["period_cycles"] == 2.5


def test_bubble_checks_cost_nothing(run_cli: RunCli) -> None:
    costs = {"stages": 4, "n_micro_batches": 6, "forward_cycles": 1, "backward_cycles": 2}
    plain = simulate(run_cli, "1f1b", **costs)
    words = [word for name, value in costs.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    checked = json.loads(run_cli("schedule", "--schedule", "1f1b", "--bubble-checks", *words, "--json").out)
    assert checked["makespan_cycles"] == plain["makespan_cycles"]
    assert checked["bubble_cycles"] == plain["bubble_cycles"]
    assert [sum("C" in action for action in program) for program in checked["programs"]] == [6, 6, 6, 6]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--schedule", "1f1b", "--forward-cycles", "1,2,3", "--stages", "2"), "one for each of 2 devices"),
        (("--schedule", "1f1b", "--program"), "--schedule popart"),
        (("--schedule", "1f1b", "--forward-cycles", "x"), "cycles are numbers"),
        (("--schedule", "interleaved", "--stages", "4", "--n-micro-batches", "6", "--chunks", "2"), "micro-batches"),
        (("--schedule", "grouped", "--stages", "2", "--n-micro-batches", "6"), "multiple of 4"),
        (("--forward-cycles", "1e99999999"), "cycles are numbers from 0"),
        (("--forward-cycles", "1e400"), "cycles are numbers from 0"),
        (("--schedule", "grouped", "--stage-to-device", "0"), "odd number"),
        (("--schedule", "grouped", "--stage-to-device", "0", "--mode", "inference"), "at least 2 stages"),
        (("--schedule", "grouped", "--stage-to-device", "100000000,0,0,1"), "numbered from 0"),
        (("--schedule", "grouped", "--stage-to-device", "0,1,1,0", "--stages", "7"), "contradict"),
        (("--schedule", "gpipe", "--stages", "10000000000"), "--stages: must be a whole number from 1 to 1,000, got"),
        (("--schedule", "gpipe", "--n-micro-batches", "9" * 20), "must be a whole number from 1 to 500,000, got"),
        (("--schedule", "gpipe", "--stages", "1000", "--n-micro-batches", "9999"), "all chunks counted, got 9,999,000"),
        (
            ("--schedule", "interleaved", "--stages", "500", "--chunks", "3"),
            "at most 1,000 stages, all chunks counted, got 1,500",
        ),
        (("--schedule", "v-half", "--stages", "65"), "v-half takes at most 64 stages, all chunks counted, got 65"),
        (
            ("--schedule", "zb1p", "--stages", "4", "--n-micro-batches", "9999"),
            "zb1p takes at most 32,768 stages x micro-batches, all",
        ),
        (("--schedule", "zb1p", "--max-in-flight", "9" * 30), "must be a whole number from 1 to 500,000, got"),
        (("--schedule", "gpipe", "--stage-to-device", "0,1,1,0"), "grouped"),
        (("--schedule", "1f1b", "--bubble-checks", "--transfers", "barrier"), "barrier"),
        (("--schedule", "1f1b", "--bubble-checks", "--csv", "checks.csv"), "PyTorch has no bubble checks"),
        (("--from-csv", "none.csv"), "No such file"),
        (("--from-csv", "none.csv", "--schedule", "1f1b"), "leave out --schedule"),
        (("--from-csv", "none.csv", "--n-micro-batches", "8", "--mode", "training"), "out --n-micro-batches, --mode"),
        (("--from-csv", "none.csv", "--stages", "2", "--chunks", "2"), "leave out --stages, --chunks"),
        (("--from-csv", "none.csv", "--bubble-checks", "--view", "stages"), "leave out --bubble-checks, --view"),
    ],
)
def test_an_invalid_pipeline_is_refused_in_one_line(run_cli: RunCli, words: tuple[str, ...], what: str) -> None:
    refused = run_cli("schedule", *words, "--json")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.count("\n") == 1
    assert what in refused.err


def test_timelines_are_written_as_files(run_cli: RunCli, tmp_path: Path) -> None:
    page, trace = tmp_path / "timeline.html", tmp_path / "trace.json"
    printed = run_cli("schedule", "--schedule", "1f1b", "--stages", "3", "--html", str(page), "--trace", str(trace))
    assert printed.code == 0
    assert "simulated" in printed.out
    assert "<html" in page.read_text(encoding="utf-8")[:1000]
    assert len(json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]) > 2 * 3 * 8


def test_an_order_is_written_as_csv_and_read_back(run_cli: RunCli, tmp_path: Path) -> None:
    file, again = tmp_path / "zbv.csv", tmp_path / "again.csv"
    costs = {"forward_cycles": "1,2", "backward_cycles": 2, "weight_cycles": 1, "comm_cycles": 0.5}
    made = simulate(run_cli, "zbv", stages=2, n_micro_batches=4, **costs, csv=file)
    words = [word for name, value in costs.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    read = run_cli("schedule", "--from-csv", str(file), *words, "--csv", str(again), "--json")
    assert (read.code, read.err) == (0, "")
    assert json.loads(read.out) == made | {"order": "custom"}
    assert again.read_text() == file.read_text()


def test_the_schedule_of_a_file_is_drawn(run_cli: RunCli, tmp_path: Path) -> None:
    file, page, trace = tmp_path / "mixed.csv", tmp_path / "mixed.html", tmp_path / "mixed.json"
    file.write_text("0F0,0F1,0I0,0W0,0B1\n1F0,1B0,1F1,1B1\n")
    printed = run_cli("schedule", "--from-csv", str(file), "--html", str(page), "--trace", str(trace))
    assert printed.code == 0
    assert "custom, 2 micro-batches, simulated" in printed.out
    assert "<html" in page.read_text(encoding="utf-8")[:1000]
    assert "1W1" in trace.read_text(encoding="utf-8")
