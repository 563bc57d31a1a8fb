"""What servers that failed say of configurations that were not tried."""

import pytest

from autoauto.evaluate.serving.live.faults import Faults
from autoauto.records.errors import Infeasible, OutOfMemory, Unsupported
from autoauto.space.knobs import Knobs
from autoauto.space.modes.generation import Generation
from autoauto.targets.host.runtimes.llamacpp.session import LlamaCppSession

PLAIN = Knobs(1, 8, mode=Generation(64, 32), session=LlamaCppSession())


def faults() -> Faults:
    """Every slot of a server needs 10 bytes."""
    return Faults(lambda knobs: 10 * knobs.replicas * knobs.batch_size)


def test_after_a_lack_of_memory_only_less_is_tried() -> None:
    rules = faults()
    rules.add(PLAIN, OutOfMemory("the server ran out of memory: failed to allocate 80 bytes", 0))
    with pytest.raises(Infeasible, match=r"no less memory than a server with batch_size 8: .* failed to allocate 80"):
        rules.check(PLAIN.with_values(batch_size=16))
    with pytest.raises(Infeasible, match="no less memory"):
        rules.check(PLAIN.with_values(batch_size=4, replicas=2))
    rules.check(PLAIN.with_values(batch_size=4))


def test_a_fault_is_that_of_values_that_no_working_server_has() -> None:
    rules = faults()
    rules.add_working(PLAIN)
    rules.add(PLAIN.with_values(cache_type="q4_0", n_ubatch=128), Unsupported("the server ended: bad head size"))
    with pytest.raises(Unsupported, match=r"cache_type q4_0.* failed: the server ended: bad head size"):
        rules.check(PLAIN.with_values(cache_type="q4_0", n_ubatch=128, batch_size=2))
    rules.check(PLAIN.with_values(cache_type="q4_0"))
    rules.add_working(PLAIN.with_values(n_ubatch=128))
    with pytest.raises(Unsupported, match="bad head size"):
        rules.check(PLAIN.with_values(cache_type="q4_0"))
    rules.check(PLAIN.with_values(cache_type="q8_0"))


def test_a_model_that_no_server_loads_is_given_up_after_two() -> None:
    rules = faults()
    rules.add(PLAIN, Unsupported("the server ended: 0.01.2 error loading model"))
    rules.check(PLAIN.with_values(batch_size=4))
    rules.add(PLAIN.with_values(n_ubatch=128), Unsupported("the server ended: 0.02.5 error loading model"))
    with pytest.raises(Unsupported, match="error loading model"):
        rules.check(PLAIN.with_values(batch_size=4))


def test_what_is_asked_for_again_is_tried_again() -> None:
    rules = faults()
    rules.add(PLAIN, OutOfMemory("the server ran out of memory", 0))
    rules.check(PLAIN)
