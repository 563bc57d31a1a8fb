"""The study of what searches cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from studies.search_cost import HERE, checkout_of

SEARCH = "resnet50 --cluster bow-2000 --batch-size 1:8 --memory-proportion 0.6"


@pytest.mark.slow
def test_a_search_is_counted_beside_that_of_another_checkout(run_script: Callable[..., list[str]]) -> None:
    head, row = run_script("search_cost", SEARCH, "--before", str(HERE), "--pairs", "1")
    names = (
        head.removeprefix("search").replace("CPU s", "CPU_s").replace("x work", "x_work").replace("again s", "again_s")
    )
    numbers = dict[str, list[float]]()
    for name, number in zip(names.split(), row.removeprefix(SEARCH).split(), strict=True):
        numbers.setdefault(name, []).append(float(number))
    ours = [*numbers["CPU_s"], *numbers["again_s"]]
    assert numbers["ratio"] == pytest.approx([ours[i] / numbers["before"][i] for i in range(2)], abs=0.02)
    assert min(ours) > 0
    assert 50 < numbers["MiB"][0] < 2000
    assert 500 < numbers["modules"][0] < 2000
    # A search of one cell of eight batch sizes: some of them are forecast, each with a profile of all kinds of layers.
    assert numbers["forecasts"][0] >= numbers["profiles"][0] >= 2
    assert numbers["compilations"][0] >= 20 * numbers["profiles"][0]


@pytest.mark.skipif(not (HERE / ".git").exists(), reason="no repository")
def test_a_commit_is_a_checkout_for_a_while() -> None:
    with checkout_of("HEAD") as folder:
        assert (folder / "autoauto" / "__main__.py").is_file()
    assert not folder.exists()


def test_a_folder_is_a_checkout_that_stays(tmp_path: Path) -> None:
    with checkout_of(str(tmp_path)) as folder:
        assert folder == tmp_path
    assert tmp_path.exists()
