from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Door = Callable[..., Any]


@pytest.mark.parametrize(
    ("target", "options", "told"),
    [
        ("host", ("--overlap-io",), "has no --overlap-io"),
        ("host", ("--partials", "fp16"), "has no --partials"),
        ("ipu", ("--device-memory-mib", "64"), "has no --device-memory-mib"),
        ("host", ("--precision", "fp16"), "the formats of its file, got --precision fp16"),
        ("host", ("--cluster", "bow-2000"), "is for 'ipu'; try --target ipu"),
        ("host", ("--mode", "training"), "runs inference"),
    ],
)
def test_options_of_another_target_are_refused(door: Door, target: str, options: tuple[str, ...], told: str) -> None:
    code, _, err = door("predict", "resnet50", "--target", target, *options)
    assert code == 2
    assert told in err


@pytest.mark.parametrize("command", [("profile", "resnet50", "--sweep", "memory-proportion"), ("phased", "resnet50")])
def test_what_only_a_cost_model_can_answer_is_refused_on_the_host(door: Door, command: tuple[str, ...]) -> None:
    code, _, err = door(*command, "--target", "host")
    assert code == 2
    assert "--target ipu, got host" in err


HOST = """
name = "four-cores"
target = "host"
n_devices = {n_devices}
[device]
name = "core"
clock_hz = {clock_hz}
memory_bytes = 100000000
n_tiles = 1
tile_memory_bytes = 100000000
[host_link]
bytes_per_s = 1e10
idle_cycles = 1000
[device_link]
bytes_per_s = 1e10
idle_cycles = 1000
"""


@pytest.mark.parametrize(
    ("n_devices", "clock_hz", "options", "told"),
    [
        (4096, "1e9", (), "needs 4096 cores"),
        (1, "2e9", (), "clock_hz must be 1e9"),
        (1, "1e9", ("--device-memory-mib", "64"), "write memory_bytes into the cluster file"),
        (1, "1e9", ("--cores-per-device", "0"), "cores"),
    ],
)
def test_a_described_host_must_be_this_machine(
    door: Door, tmp_path: Path, n_devices: int, clock_hz: str, options: tuple[str, ...], told: str
) -> None:
    path = tmp_path / "host.toml"
    path.write_text(HOST.format(n_devices=n_devices, clock_hz=clock_hz))
    code, _, err = door("predict", "resnet50", "--target", "host", "--cluster", str(path), *options)
    assert code == 2
    assert told in err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--cluster", ""), "a cluster is bow-2000"),
        (("--float-operators", "Relu,gelu"), "takes ONNX operators, got 'gelu'; try Gelu"),
    ],
)
def test_names_of_nothing_are_refused(door: Door, options: tuple[str, ...], told: str) -> None:
    code, out, err = door("predict", "resnet50", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


def test_operators_that_a_model_lacks_may_be_named(door: Door) -> None:
    assert door("predict", "resnet50", "--float-operators", "Relu,Gelu").code == 0
