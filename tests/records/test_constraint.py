"""Expressions that must hold: what is allowed, what holds, and how far from it the rest is."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoauto.records.constraint import DEEPEST, KNOB_NAMES, LONGEST, RESULT_NAMES, Constraint
from autoauto.records.errors import BadInput

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
        ("n_ipu * 1e299 * 1e299 - n_ipu * 1e299 * 1e299 < 1", False),  # no number at all
        ("n_ipu * 1e299 * 1e299 > 1", True),
    ],
)
def test_what_holds(text: str, holds: bool) -> None:
    assert (Constraint(text).miss(NUMBERS) <= 0) == holds


@pytest.mark.parametrize(
    ("text", "miss"),
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
def test_a_miss_is_a_share_of_what_is_compared(text: str, miss: float) -> None:
    assert Constraint(text).miss(NUMBERS) == pytest.approx(miss)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("n_ipus <= 2", "did you mean n_ipu"),
        ("width <= 2", "there are n_ipu"),
        ("n_ipu", "is no comparison"),
        ("n_ipu and 3 < 4", "is no comparison"),
        ("1 < 2", "it names nothing"),
        ("__import__('os').system('true') < 1", "neither a number"),
        ("n_ipu.real < 1", "neither a number"),
        ("n_ipu ** 9 < 1", "neither a number"),
        ("True < n_ipu", "neither a number"),
        ("n_ipu < 1e999", "neither a number"),
        ("n_ipu in (1, 2)", "is no comparison"),
        ("(n_ipu < 2) < 3", "neither a number"),
        ("n_ipu = 3", "invalid syntax"),
        ("", "invalid syntax"),
        ("n_ipu < \0", "null"),
        ("n_ipu <\n2", "invalid syntax"),
        ("-" * 2 * DEEPEST + "n_ipu < 2", "nested"),
        ("n_ipu < 2" + " " * LONGEST, "at most"),
        ("(" * 240 + "n_ipu < 2" + ")" * 240, "nested"),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str, told: str) -> None:
    with pytest.raises(BadInput, match=told) as refused:
        Constraint(text)
    assert "\n" not in str(refused.value)


def test_how_it_is_written_makes_no_difference() -> None:
    one, other = Constraint("(latency_s<=0.020)"), Constraint(" latency_s  <=  0.02 # tight")
    assert one == other == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(other)


def test_what_it_speaks_of() -> None:
    constraint = Constraint("n_ipu * replicas <= 16 or latency_s < n_ipu")
    assert constraint.names == ("n_ipu", "replicas", "latency_s")
    assert not constraint.over_knobs
    assert constraint.reason(NUMBERS).endswith("does not hold: n_ipu is 4, replicas is 2, latency_s is 0.02")
    assert Constraint("n_ipu * replicas <= 16").over_knobs


PIECES = [*"n_ipu<=>+-*/() 0123456789.,'[]:eE\n\0%é", "latency_s", " and ", " not ", "1or "]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_no_text_is_worse_than_refused(text: str) -> None:
    try:
        constraint = Constraint(text)
    except BadInput as error:
        refusal = str(error)
    else:
        assert isinstance(constraint.miss(NUMBERS), float)
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


@given(TRUTH.filter(lambda text: "_" in text and len(text) <= LONGEST))
def test_it_holds_where_python_says_so(text: str) -> None:
    values = {"n_ipu": 4.0, "latency_s": 0.02}
    expected = bool(eval(text, {"__builtins__": {}}, {**values}))
    assert (Constraint(text).miss(NUMBERS | values) <= 0) == expected
