"""llama.cpp's server [llama-server]: what it says of itself."""

from __future__ import annotations

from autoauto.engines.metrics import MetricNames

METRICS = MetricNames(
    engine="llama.cpp",
    running=("llamacpp:requests_processing",),
    waiting=("llamacpp:requests_deferred",),
    output_tokens=("llamacpp:tokens_predicted_total",),
)
