"""How far the joules of a token that GPUs take at most are above those that were measured.

    python studies/gpu_energy.py --rows studies/recorded/polyserve_energy.csv [--json]

The package of measured kernels has no energies: of its tables those of attention and experts of vLLM on B200 alone have
a power, and none of other products does (`tables` counts them). So the energy of a token is bounded and not modelled: a
GPU draws its power limit at most. A row is a measured configuration of one GPU [polyserve]:

    at most       power limit / forecast tokens/s, joules a token
    measured      joules a token, of the GPU alone
    of limit      the mean power that was measured over the power limit

The limit is that of the row's GPU, by its data sheet: a row of an H100 NVL has the kernels of an H100 SXM, whose limit
is 700 W and not 400 W.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

from autoauto.evaluate.open import load_flow
from autoauto.records.installation import gpu_tables_dir
from autoauto.space.knobs import Knobs


def main() -> None:
    """Print a line a row, or an object a row, and which tables have a power."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=Path, required=True, metavar="FILE.csv")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with args.rows.open(encoding="utf-8") as file:
        results = [result_of(row) for row in csv.DictReader(file)]
    tables = tables_with_power()
    if args.json:
        print(json.dumps({"rows": results, "tables": tables}))
        return
    print(
        f"{'GPU':14} {'engine':7} {'format':7} {'forecast':>9} {'measured':>9} {'at most':>9} {'measured':>9} of limit"
    )
    print(f"{'':30} {'tokens/s':>9} {'tokens/s':>9} {'J/token':>9} {'J/token':>9}")
    for row in results:
        print(
            f"{row['gpu']:14} {row['engine']:7} {row['weights']:7} {row['forecast_tokens_per_s']:9.1f} "
            f"{row['tokens_per_s']:9.1f} {row['max_joules']:9.3f} {row['joules_per_token']:9.3f} "
            f"{row['share_of_limit']:8.0%}"
        )
    with_power = ", ".join(name for name, has_power in tables.items() if has_power)
    print(f"tables with a power: {sum(tables.values())} of {len(tables)}: {with_power}")


def result_of(row: dict[str, str]) -> dict[str, Any]:
    """A measured row with its forecast."""
    flow = load_flow(row["model"], cluster=f"{row['system']}-1", target="gpu")
    knobs = Knobs(
        1,
        int(row["batch_size"]),
        engine=row["engine"],
        precision=row["weights"],
        input_tokens=int(row["input_tokens"]),
        output_tokens=int(row["output_tokens"]),
    )
    forecast = flow.expect(knobs).tokens.tokens_per_s
    limit_w, power_w = float(row["power_limit_w"]), float(row["power_w"])
    names = ("gpu", "engine", "weights")
    return {name: row[name] for name in names} | {
        "forecast_tokens_per_s": forecast,
        "tokens_per_s": float(row["tokens_per_s"]),
        "max_joules": limit_w / forecast,
        "max_joules_of_measured_speed": limit_w / float(row["tokens_per_s"]),
        "joules_per_token": float(row["joules_per_token"]),
        "share_of_limit": power_w / limit_w,
    }


def tables_with_power() -> dict[str, bool]:
    """Every table of measured kernels by its path, and whether it has a power above 0."""
    from pyarrow import parquet  # type: ignore[import-untyped]

    folder = gpu_tables_dir()
    assert folder is not None
    n_powers: Counter[str] = Counter()
    for path in sorted((folder / "systems" / "data").rglob("*.parquet")):
        name = str(path.relative_to(folder / "systems" / "data"))
        n_powers[name] = 0
        file = parquet.ParquetFile(path)
        if "power" in file.schema_arrow.names:
            powers = file.read(["power"]).column("power").to_numpy()
            n_powers[name] = int((powers > 0).sum())
    return {name: n > 0 for name, n in n_powers.items()}


if __name__ == "__main__":
    main()
