"""Which formats may write a configuration, by its knobs."""

import pytest

from autoauto.engines.registry import ENGINES
from autoauto.exporters.registry import FORMATS, formats_for


@pytest.mark.parametrize("engine", ENGINES)
def test_a_configuration_of_an_engine_is_written_for_that_engine(engine: str) -> None:
    assert formats_for({"engine": engine, "schedule": "inference"}) == [ENGINES[engine].launcher.to]


def test_a_server_of_this_machine_has_its_own_format() -> None:
    assert formats_for({"runtime": "llamacpp"}) == ["llama-cpp"]


def test_plans_of_layers_have_all_others_and_training_those_that_train() -> None:
    of_layers = {name for name, each in FORMATS.items() if not each.serves_decoders}
    assert set(formats_for({"runtime": "onnxruntime", "engine": None})) == of_layers
    training = formats_for({"schedule": "1f1b"})
    assert set(training) == {name for name in of_layers if FORMATS[name].trains}
