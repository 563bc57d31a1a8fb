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
)
from autoauto.records.layers import LayerRange


@pytest.mark.parametrize("kind", [Infeasible, OutOfMemory])
def test_what_does_not_fit_says_how_much_is_missing_and_where(kind: type[DoesNotFit]) -> None:
    failure = kind("too much", 7, LayerRange(1, 3), {"parameter": 9})
    assert isinstance(failure, DoesNotFit)
    assert (str(failure), failure.excess_bytes, failure.layers) == ("too much", 7, (1, 3))
    assert failure.memory_bytes == {"parameter": 9}


@pytest.mark.parametrize("kind", [Infeasible, OutOfMemory])
def test_what_does_not_fit_travels_between_processes(kind: type[DoesNotFit]) -> None:
    failure = pickle.loads(pickle.dumps(kind("too much", 7, LayerRange(1, 3), {"parameter": 9})))
    assert (type(failure), str(failure), failure.excess_bytes) == (kind, "too much", 7)
    assert (failure.layers, failure.memory_bytes) == (LayerRange(1, 3), {"parameter": 9})


def test_errors_are_kin_of_pythons_own() -> None:
    assert issubclass(BadInput, ValueError)
    assert issubclass(MissingExtra, ImportError)
    assert issubclass(EndOfStream, EOFError)
    assert all(issubclass(kind, AutoautoError) for kind in (BadInput, MissingExtra, DoesNotFit))
    assert not issubclass(DoesNotFit, ValueError)
