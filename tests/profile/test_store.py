from pathlib import Path

import pytest

from autoauto.profile.store import load_profile, save_profile
from autoauto.records.errors import BadInput
from autoauto.records.profile import CompileOptions, LayerProfile, ModelProfile
from autoauto.records.units import Precision

LAYER = LayerProfile(10, 0, {"vertexCode_k": 5}, {"parameter": 7}, 11, 1, 2, 3, 0)


@pytest.mark.parametrize("options", [None, CompileOptions(4, 0.6, Precision.FP16)])
def test_a_saved_profile_comes_back_equal(tmp_path: Path, options: CompileOptions | None) -> None:
    profile = ModelProfile("m", "ipu bow", options, ("a", "b"), ("k", "k"), (None, "w"), (LAYER, LAYER))
    save_profile(profile, tmp_path / "p.json")
    assert load_profile(tmp_path / "p.json") == profile


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 99}', "{"])
def test_a_file_that_is_no_profile_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(BadInput) as refusal:
        load_profile(path)
    assert "\n" not in str(refusal.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere"):
        load_profile(tmp_path / "nowhere.json")


def test_an_unwritable_place_is_refused(tmp_path: Path) -> None:
    profile = ModelProfile("m", "ipu bow", None, ("a",), ("k",), (None,), (LAYER,))
    with pytest.raises(BadInput, match="written"):
        save_profile(profile, tmp_path / "no" / "p.json")
