import json
from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from autoauto.cli.arguments import integers, positive, proportions, read_cluster


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1:", ":3", "1:2:3", "1.5"])
def test_what_is_no_list_of_integers_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="1,2,4 or 1:128"):
        integers(text)


@pytest.mark.parametrize("text", ["", "a", "0.3;0.6"])
def test_what_is_no_list_of_proportions_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"0\.3,0\.6,1\.0"):
        proportions(text)


@pytest.mark.parametrize("text", ["8:1", "1:1000000000"])
def test_a_knob_takes_a_sensible_number_of_values(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="1 to 100000 values"):
        integers(text)


@pytest.mark.parametrize("text", ["0", "-1", "", "1.5", "x"])
def test_what_is_not_positive_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="from 1"):
        positive(text)


def test_both_ends_of_a_span_are_values() -> None:
    assert integers("1:128") == tuple(range(1, 129))


def test_the_seeds_cluster_is_one_too(tmp_path: Path) -> None:
    end = {"recvGBps": 7, "recvIdleCycle": 50000, "sendGBps": 70, "sendIdleCycle": 3000}
    start = {"recvGBps": 70, "recvIdleCycle": 3000, "sendGBps": 7, "sendIdleCycle": 50000}
    path = tmp_path / "pair.json"
    path.write_text(json.dumps({"clock": 1850000000, "memory": 894, "connection": [end, start]}))
    seed, ours = read_cluster(str(path)), read_cluster("seed-2-ipu")
    assert (seed.receive_links, seed.send_links) == (ours.receive_links, ours.send_links)
    assert [device.memory_bytes for device in seed.devices] == [device.memory_bytes for device in ours.devices]
