"""Models and clusters, drawn."""

from collections.abc import Callable

from autoauto.records.hardware import Cluster, Device, Link
from autoauto.report.listings import clusters_table, models_table

Text = Callable[..., str]

MODELS = """\
Built-in models
name      layers  kinds  weights (fp16)
───────────────────────────────────────
resnet50   1,220     40         2.0 MiB"""

CLUSTERS = """\
Built-in clusters
name  target  devices     clock     memory       host link    device link
─────────────────────────────────────────────────────────────────────────
pair  ipu     2 x bow  1.85 GHz  894.0 MiB       7.0 GiB/s     70.0 GiB/s
                                            +50,000 cycles  +3,000 cycles
one   ipu     1 x bow  1.85 GHz  894.0 MiB       7.0 GiB/s              -
                                            +50,000 cycles
a link waits its idle cycles, then moves so many GiB a second"""


def test_models_are_drawn(text: Text) -> None:
    rows = [{"name": "resnet50", "n_layers": 1220, "n_kinds": 40, "weight_bytes": 2 * 1024**2}]
    assert text(models_table(rows)) == MODELS


def test_clusters_are_drawn(text: Text) -> None:
    device = Device("bow", 1.85e9, 894 * 1024**2, 1472, 638_976)
    host, between = Link(7 * 1024**3, 50_000), Link(70 * 1024**3, 3_000)
    pair = Cluster("pair", "ipu", (device, device), (host, between), (between, host))
    one = Cluster("one", "ipu", (device,), (host,), (host,))
    assert text(clusters_table([pair, one])) == CLUSTERS
