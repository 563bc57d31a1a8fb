"""Constraints: which expressions are allowed, which hold, and the violation of the others."""

from __future__ import annotations

import pickle
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.errors import BadInput
from autoauto.space.constraint import MAX_CHARACTERS, MAX_DEPTH, Constraint
from autoauto.space.numbers import RESULT_NAMES
from autoauto.space.table import KNOB_NAMES

NUMBERS = {**dict.fromkeys((*KNOB_NAMES, *RESULT_NAMES), 1.0), "n_ipu": 4.0, "replicas": 2.0, "latency_s": 0.02}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("latency_s <= 0.02", True),
        ("latency_s < 0.02", False),
        ("latency_s == 0.02", True),
        ("latency_s != 0.02", False),
        ("0.01 < latency_s <= 0.03", True),
        ("0.03 < latency_s <= 0.04", False),
        ("n_ipu * replicas <= 16", True),
        ("n_ipu * replicas + 1 - 2 / 2 > 8", False),
        ("-n_ipu < -3", True),
        ("n_ipu > 4 or replicas == 2", True),
        ("n_ipu > 4 and replicas == 2", False),
        ("not (n_ipu > 4 or replicas == 3)", True),
        ("not n_ipu <= 4", False),
        ("1 / (recompute - 1) < 3", False),  # divides by 0
        ("n_ipu * 1e299 * 1e299 - n_ipu * 1e299 * 1e299 < 1", False),  # not a number
        ("n_ipu * 1e299 * 1e299 > 1", True),
    ],
)
def test_a_constraint_holds_or_not(text: str, holds: bool) -> None:
    assert (Constraint(text).violation(NUMBERS) <= 0) == holds


@pytest.mark.parametrize(
    ("text", "violation"),
    [
        ("latency_s <= 0.01", 1.0),
        ("latency_s <= 0.04", -1.0),
        ("latency_s >= 0.04", 1.0),
        ("n_ipu <= 2 and latency_s <= 0.016", 1.0),
        ("n_ipu <= 2 or latency_s <= 0.016", 0.25),
        ("not n_ipu > 2", 1.0),
        ("n_ipu == 5", 0.25),
    ],
)
def test_a_violation_is_relative_to_the_numbers_compared(text: str, violation: float) -> None:
    assert Constraint(text).violation(NUMBERS) == pytest.approx(violation)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("n_ipus <= 2", "did you mean 'n_ipu'"),
        ("width <= 2", "there are n_ipu"),
        ("n_ipu", "is no comparison"),
        ("n_ipu and 3 < 4", "is no comparison"),
        ("1 < 2", "it names nothing"),
        ("__import__('os').system('true') < 1", "neither a number"),
        ("n_ipu.real < 1", "neither a number"),
        ("n_ipu ** 9 < 1", "neither a number"),
        ("True < n_ipu", "neither a number"),
        ("n_ipu < 1e999", "neither a number"),
        ("tpot_s <= 1/0", "'1 / 0' divides by 0"),
        ("tpot_s <= -(2 - 2) * 1 / (1 - 1)", "divides by 0"),
        ("tpot_s / (3 * 0) <= 1 or n_ipu < 2", "divides by 0"),
        ("tpot_s <= 1e200 * 1e200", "is no finite number"),
        ("n_ipu in (1, 2)", "is no comparison"),
        ("(n_ipu < 2) < 3", "neither a number"),
        ("n_ipu = 3", "invalid syntax"),
        ("", "invalid syntax"),
        ("n_ipu < \0", "null"),
        ("n_ipu <\n2", "invalid syntax"),
        ("-" * 2 * MAX_DEPTH + "n_ipu < 2", "nested"),
        ("n_ipu < 2" + " " * MAX_CHARACTERS, "at most"),
        ("(" * 240 + "n_ipu < 2" + ")" * 240, "nested"),
    ],
)
def test_other_expressions_are_refused_in_one_line(text: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem) as refused:
        Constraint(text)
    assert "\n" not in str(refused.value)


def test_spaces_and_brackets_make_no_difference() -> None:
    first, second = Constraint("(latency_s<=0.020)"), Constraint(" latency_s  <=  0.02 # tight")
    assert first == second == pickle.loads(pickle.dumps(first))
    assert hash(first) == hash(second)


def test_a_constraint_knows_the_names_in_it() -> None:
    constraint = Constraint("n_ipu * replicas <= 16 or latency_s < n_ipu")
    assert constraint.names == ("n_ipu", "replicas", "latency_s")
    assert not constraint.over_knobs
    assert constraint.reason(NUMBERS).endswith("does not hold: n_ipu is 4, replicas is 2, latency_s is 0.02")
    assert Constraint("n_ipu * replicas <= 16").over_knobs


PIECES = [*"n_ipu<=>+-*/() 0123456789.,'[]:eE\n\0%é", "latency_s", " and ", " not ", "1or "]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_text_is_a_constraint_or_refused_in_one_line(text: str) -> None:
    try:
        constraint = Constraint(text)
    except BadInput as error:
        refusal = str(error)
    else:
        assert isinstance(constraint.violation(NUMBERS), float)
        assert Constraint(constraint.text) == constraint
        return
    assert "\n" not in refusal


NUMBER = st.sampled_from(["n_ipu", "latency_s", "2", "0.5"])  # above 0, as are their sums: nothing divides by 0
SUM = st.recursive(NUMBER, lambda part: st.tuples(part, st.sampled_from("+*/"), part).map(lambda p: f"({' '.join(p)})"))
TRUTH = st.recursive(
    st.tuples(SUM, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), SUM).map(" ".join),
    lambda part: st.one_of(
        st.tuples(part, st.sampled_from(["and", "or"]), part).map(lambda p: f"({' '.join(p)})"),
        part.map(lambda p: f"not ({p})"),
    ),
    max_leaves=6,
)


@given(TRUTH.filter(lambda text: "_" in text and len(text) <= MAX_CHARACTERS))
def test_a_constraint_holds_when_python_evaluates_it_to_true(text: str) -> None:
    values = {"n_ipu": 4.0, "latency_s": 0.02}
    expected = bool(eval(text, {"__builtins__": {}}, {**values}))
    assert (Constraint(text).violation(NUMBERS | values) <= 0) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tpot < 50", "tpot needs a number with its unit; try for example tpot <= 50ms"),
        ("tpot < 50 parsecs", "there is no unit parsecs; units are us, ms, s"),
    ],
)
def test_times_have_units_that_are_known(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Constraint(text)


def test_units_are_seconds_and_bytes() -> None:
    assert Constraint("ttft <= 1.5 s and tpot < 50ms").text == "ttft_s <= 1.5 and tpot_s < 0.05"
    assert Constraint("latency < 200us") == Constraint("latency_s < 0.0002")
    assert Constraint("latency_s < 1E-3") == Constraint("latency < 1e3us") == Constraint("latency_s < 0.001")


def nested(n: int) -> list[str]:
    """Every kind of expression around a number or a comparison, `n` times."""
    return [
        "not " * n + "n_ipu < 2",
        "1 < 2 or (" * n + "n_ipu < 2" + ")" * n,
        "-" * n + "n_ipu < 2",
        "(n_ipu" + " + 1" * n + ") < 2",
        "2 > " + "1 + (" * n + "n_ipu" + ")" * n,
    ]


@pytest.mark.parametrize(("text", "deeper"), [*zip(nested(39), nested(40), strict=True)])
def test_every_kind_of_expression_is_as_deep_as_allowed_and_no_deeper(text: str, deeper: str) -> None:
    """A number in a comparison is one deeper than the comparison: 39 levels around it make 40."""
    assert Constraint(text).names == ("n_ipu",)
    with pytest.raises(BadInput, match="nested more than 40 deep"):
        Constraint(deeper)


def test_a_text_and_its_numbers_are_as_long_and_as_large_as_allowed() -> None:
    text = "n_ipu < 2"
    assert Constraint(text + " " * 491).text == text
    with pytest.raises(BadInput, match="at most 500 characters, got 501"):
        Constraint(text + " " * 492)
    assert Constraint("n_ipu < 9e299").violation({"n_ipu": 4.0}) == pytest.approx(-9e299 / 4)
    for number in ("1e300", "-1e300", "True"):
        with pytest.raises(BadInput, match="is neither a number"):
            Constraint(f"n_ipu < {number}")
    with pytest.raises(BadInput, match=r"a constraint is an expression like .*, got 3"):
        Constraint(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "bounds"),
    [
        ("latency_s <= 0.02", (0.02,)),
        ("0.02 > latency_s", (0.02,)),
        ("latency_s < 0.02 and latency_s > 0.01 and n_ipu < 3", (0.02, 0.01)),
        ("latency_s < 0.02 or n_ipu < 3", ()),  # need not hold
        ("not latency_s < 0.02", ()),
        ("latency_s < 0.02 * 2", ()),
        ("latency_s * 2 < 0.02", ()),
        ("n_ipu < 3", ()),
    ],
)
def test_bounds_of_a_name_are_numbers_that_it_alone_is_compared_with(text: str, bounds: tuple[float, ...]) -> None:
    assert Constraint(text).bounds("latency_s") == bounds


@pytest.mark.parametrize(
    ("text", "violation"),
    [
        ("n_ipu < 4", 1e-9),  # equal
        ("n_ipu <= 4", 0.0),
        ("not n_ipu <= 4", 1e-9),
        ("n_ipu != 4", 1e-9),
        ("n_ipu == 4", 0.0),
        ("n_ipu != 2", -1.0),  # 2 of 2
        ("n_ipu - 4 < -2", 1.0),  # 2 of the number that is not 0
        ("n_ipu - 4 == 0", 0.0),
        ("5 < n_ipu <= 8", 0.25),
        ("n_ipu < 8 and replicas < 8", -1.0),  # 4 of 4, and 6 of 2
        ("n_ipu > 8 or replicas > 8", 1.0),
        ("+n_ipu > 6", 0.5),
        ("1 / (n_ipu - 4) < 3", 1.0),  # divides by 0
        ("n_ipu * 1e299 * 1e299 - n_ipu * 1e299 * 1e299 < 1", inf),  # no number
        ("n_ipu * 1e299 * 1e299 - n_ipu * 1e299 * 1e299 != 1", -inf),
    ],
)
def test_violations_by_hand(text: str, violation: float) -> None:
    assert Constraint(text).violation(NUMBERS) == pytest.approx(violation, abs=1e-15)


def test_a_refusal_shows_the_beginning_of_what_is_long() -> None:
    with pytest.raises(BadInput, match=f"got '{'9' * 77}...': .*'{'9' * 37}...' is no comparison"):
        Constraint("9" * 81)
    with pytest.raises(BadInput, match=f"got '{'9' * 80}': .*'{'9' * 37}...' is no comparison"):
        Constraint("9" * 80)
    with pytest.raises(BadInput, match=f"'{'9' * 40}' is no comparison"):
        Constraint("9" * 40)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ttft < 500 and tpot < 50ms", "ttft needs a number with its unit"),
        ("tpot < 50ms or latency < 2", "latency needs a number with its unit"),
        ("tpot < 50MiB", "tpot needs a number with its unit"),
        ("tokens_per_s >= 1h", "h is the unit of a time, and no name beside it is one"),
        ("kv_cache_bytes <= 10ms", "ms is the unit of a time, and no name beside it is one"),
        ("batch_size <= 4GiB", "GiB is the unit of a number of bytes, and no name beside it is one"),
    ],
)
def test_a_unit_is_that_of_what_is_compared(text: str, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        Constraint(text)


def test_every_unit_and_every_time_that_needs_one() -> None:
    units = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "KiB": 1024, "MiB": 1048576, "GiB": 1073741824}
    for unit, factor in units.items():
        name = "kv_cache_bytes" if "B" in unit else "latency_s"
        assert Constraint(f"{name} < 3{unit}").violation({name: 6.0 * factor}) == pytest.approx(1.0)
    for name in ("latency", "ttft", "tpot", "ttft_p50", "tpot_p90", "latency_p95", "ttft_p99", "request_latency"):
        assert Constraint(f"{name} < 1 s").names == (f"{name}_s",)
