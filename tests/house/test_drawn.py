"""Examples that Hypothesis draws depend on no clock and on no chance."""

from hypothesis import HealthCheck, settings


def test_drawn_examples_are_the_same_in_every_run_and_have_no_deadline() -> None:
    assert settings.default is not None
    assert settings.default.derandomize
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
