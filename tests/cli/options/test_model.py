from argparse import ArgumentTypeError

import pytest

from autoauto.cli.options.model import aim, choices_of, switches
from autoauto.records.knobs import TRAINING_ORDERS


@pytest.mark.parametrize("text", ["", "on,", "yes", "on;off"])
def test_what_is_no_switch_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="on, off or off,on"):
        switches(text)


@pytest.mark.parametrize("text", ["", "gpipe,", "GPipe", "inference"])
def test_other_words_than_the_known_are_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="one or more of popart, gpipe"):
        choices_of(TRAINING_ORDERS)(text)


@pytest.mark.parametrize("text", ["", "speed", "latency,latency"])
def test_what_is_no_objective_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="one or more of throughput"):
        aim(text)
