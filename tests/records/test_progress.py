"""What a callback is told says it in words that travel: it can be pickled and written as JSON."""

import json
import pickle
from dataclasses import asdict
from datetime import UTC, datetime

from autoauto.records.progress import FinishedTrial, Phase
from autoauto.records.trial import Knobs


def test_a_trial_travels() -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    trial = FinishedTrial(3, Knobs(1, 0.6, 8), "COMPLETE", 2.0, 2.0, "", True, moment, moment)
    assert pickle.loads(pickle.dumps(trial)) == trial
    told = json.loads(json.dumps(asdict(trial), default=datetime.isoformat))
    assert (told["knobs"]["batch_size"], told["started"]) == (8, "2024-01-02T03:04:05+00:00")


def test_phases_are_words() -> None:
    assert list(Phase) == ["predicting", "measuring", "verifying"]
