"""The kinds of a profile, drawn."""

from collections.abc import Callable

from autoauto.records.profile import LayerProfile, ModelProfile
from autoauto.report.profile import profile_table

Text = Callable[..., str]

DRAWN = """\
Layers compiled alone, measured (cost model)
                     cycles  of all
first layer  layers    each  cycles  always live  temporary
───────────────────────────────────────────────────────────
conv              2     400  80.0 %      3.0 KiB      100 B
pool              1     200  20.0 %      3.0 KiB      100 B
2 of 2 kinds; 3 layers, 1,000 cycles"""


def layer(cycles: int) -> LayerProfile:
    return LayerProfile(cycles, 0, {"vertexCode_k": 1024}, {"parameter": 2048}, 100, 0, 0, 0, 0)


PROFILE = ModelProfile(
    model="small",
    target="ipu bow",
    options=None,
    names=("pool", "conv", "conv2"),
    kinds=("p", "c", "c"),
    tied=(None, None, None),
    layers=(layer(200), layer(400), layer(400)),
)


def test_kinds_are_drawn_dearest_first(text: Text) -> None:
    assert text(profile_table(PROFILE)) == DRAWN


def test_only_the_dearest_are_shown(text: Text) -> None:
    drawn = text(profile_table(PROFILE, top=1))
    assert "pool" not in drawn
    assert "1 of 2 kinds" in drawn
