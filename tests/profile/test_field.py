from collections.abc import Callable

import pytest

from autoauto.profile.field import Field
from autoauto.records.errors import BadInput
from autoauto.records.units import Precision


def test_a_value_deep_inside_knows_its_place() -> None:
    field = Field({"a": [{"b": 7}]}, "root")["a"].entries()[0]["b"]
    assert field == Field(7, "root.a[0].b")


def test_a_missing_field_has_the_default() -> None:
    assert Field({}, "root").get("a", 3) == Field(3, "root.a")
    assert Field({"a": 4}, "root").get("a", 3) == Field(4, "root.a")


def test_values_of_every_kind() -> None:
    assert Field("", "root").text() == ""
    assert Field("fp16", "root").choice(Precision) is Precision.FP16
    assert Field(2**53, "root").whole() == 2**53
    assert Field({"x": 1, "y": 2.0}, "root").whole_by_name() == {"x": 1, "y": 2}
    assert Field(0.5, "root").positive() == 0.5
    assert Field(True, "root").truth() is True


@pytest.mark.parametrize(
    ("value", "read", "message"),
    [
        (None, lambda f: f["a"], "root must be an object with a field a, got None; add the field"),
        ({"b": 1, "c": 2}, lambda f: f["a"], "root must be .* a field a, got an object with b, c; add the field"),
        ([], lambda f: f.get("a", 0), r"root must be an object with a field a, got \[\]"),
        ({}, lambda f: f.entries(), "root must be a list, got an object with no field"),
        (1, lambda f: f.truth(), "root must be true or false, got 1"),
        (7, lambda f: f.text(), "root must be a text, got 7"),
        ("fp4", lambda f: f.choice(Precision), "root must be one of fp16, fp32, fp8, got 'fp4'"),
        ([], lambda f: f.choice(Precision), r"root must be one of fp16, fp32, fp8, got \[\]"),
        (0, lambda f: f.whole(least=1), r"root must be a whole number from 1 to 2\*\*53, got 0"),
        (0.5, lambda f: f.whole(), "root must be a whole number .* got 0.5"),
        (float("inf"), lambda f: f.whole(), "root must be a whole number .* got inf"),
        (False, lambda f: f.whole(), "root must be a whole number .* got False"),
        ("7", lambda f: f.whole(), "root must be a whole number .* got '7'"),
        (2**53 + 1, lambda f: f.whole(), "root must be a whole number .* got 9007199254740993"),
        ([1], lambda f: f.whole_by_name(), r"root must be an object of names and bytes, got \[1\]"),
        ({"x": -1}, lambda f: f.whole_by_name(), r"root\.x must be a whole number .* got -1"),
        (0, lambda f: f.positive(), "root must be a number above 0.* got 0"),
        (float("nan"), lambda f: f.positive(), "root must be a number above 0.* got nan"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(value: object, read: Callable[[Field], object], message: str) -> None:
    with pytest.raises(BadInput, match=message) as refusal:
        read(Field(value, "root"))
    assert "\n" not in str(refusal.value)


def test_a_long_value_is_cut() -> None:
    with pytest.raises(BadInput) as refusal:
        Field("x" * 10_000, "root").whole()
    assert len(str(refusal.value)) < 150
