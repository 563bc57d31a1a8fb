"""The tree of errors, and failures that reach other processes."""

import pickle

import pytest

from autoauto.records.errors import (
    AutoautoError,
    BadInput,
    DoesNotFit,
    EndOfStream,
    Infeasible,
    MissingExtra,
    OutOfMemory,
    Unsupported,
)
from autoauto.records.layers import LayerRange


@pytest.mark.parametrize("kind", [Infeasible, OutOfMemory])
def test_a_failure_to_fit_has_the_missing_bytes_and_the_layers(kind: type[DoesNotFit]) -> None:
    failure = kind("too much", 7, LayerRange(1, 3), {"parameter": 9})
    assert isinstance(failure, DoesNotFit)
    assert (str(failure), failure.excess_bytes, failure.layers) == ("too much", 7, (1, 3))
    assert failure.memory_bytes == {"parameter": 9}


@pytest.mark.parametrize("kind", [Infeasible, OutOfMemory])
def test_a_failure_to_fit_can_be_pickled(kind: type[DoesNotFit]) -> None:
    failure = pickle.loads(pickle.dumps(kind("too much", 7, LayerRange(1, 3), {"parameter": 9})))
    assert (type(failure), str(failure), failure.excess_bytes) == (kind, "too much", 7)
    assert (failure.layers, failure.memory_bytes) == (LayerRange(1, 3), {"parameter": 9})


def test_what_a_runtime_does_not_run_is_an_outcome_and_input_that_the_user_can_mend() -> None:
    failure = pickle.loads(pickle.dumps(Unsupported("no rule for Det", LayerRange(1, 3))))
    assert isinstance(failure, DoesNotFit)
    assert isinstance(failure, BadInput)
    assert (str(failure), failure.excess_bytes, failure.layers) == ("no rule for Det", 0, (1, 3))
    assert (failure.exit_code, OutOfMemory("", 7).exit_code, AutoautoError().exit_code) == (2, 3, 2)


def test_errors_derive_from_errors_of_python() -> None:
    assert issubclass(BadInput, ValueError)
    assert issubclass(MissingExtra, ImportError)
    assert issubclass(EndOfStream, EOFError)
    assert all(issubclass(kind, AutoautoError) for kind in (BadInput, MissingExtra, DoesNotFit))
    assert not issubclass(DoesNotFit, ValueError)
