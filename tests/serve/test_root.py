"""What a server says of itself at its root: facts for programs, and a page for browsers."""

from __future__ import annotations

import json
from dataclasses import replace

from autoauto.records.target import Origin
from autoauto.serve.artifact import ServedModel
from autoauto.serve.root import root_response
from tests.serve.conftest import port

MODEL = ServedModel(
    *("a<b", 2, (port("x", 2, 3, batch_size=2),), (port("y", 2, batch_size=2),), 1, 1, 0.1, 1234.56, Origin.MEASURED)
)


def test_programs_get_facts_with_links() -> None:
    facts = json.loads(root_response(replace(MODEL, name="m"), "http://h:1", "*/*", is_ready=True).body)  # type: ignore[arg-type]
    assert facts.pop("server").startswith("autoauto ")
    assert facts.pop("protocol").startswith("Open Inference Protocol")
    assert facts == {
        "model": "m",
        "ready": True,
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
        "batch_size": 2,
        "plan_samples_per_s": 1234.56,
        "plan_origin": "measured",
        "links": {
            "model": "http://h:1/v2/models/m",
            "infer": "http://h:1/v2/models/m/infer",
            "ready": "http://h:1/v2/health/ready",
            "metrics": "http://h:1/metrics",
        },
    }


def test_a_browser_gets_a_page_in_which_names_are_no_markup() -> None:
    for is_ready, state in ((True, ", ready: "), (False, ", not ready: ")):
        answer = root_response(MODEL, "http://h:1", "text/html,*/*", is_ready=is_ready)
        assert answer.content_type == "text/html"
        page = answer.text
        assert page is not None
        assert state in page
        assert "<h1>a&lt;b</h1>" in page
        assert "a<b" not in page
        assert "Batch size 2; the plan gives 1,234.6 samples/s (measured)." in page
        assert "with inputs x, FP32 [-1, 3]." in page
        assert page.count("<li>") == 4
        assert "<code>POST http://h:1/v2/models/a&lt;b/infer</code>" in page
