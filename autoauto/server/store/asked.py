"""What was asked for: `read_submission`, `names_of`; of searches that a user may see.

In words: `asked_texts`, `labels_text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from autoauto.server.store.searches import NotFound
from autoauto.server.store.submission import Submission
from autoauto.server.store.tables import SEARCHES, ServiceDatabase
from autoauto.study.analysis.asked import asked_of


def read_submission(database: ServiceDatabase, search_id: str) -> Submission:
    """The submission of a search.

    Raises:
        NotFound: it was deleted just now.
    """
    text = database.scalar(select(SEARCHES.c.submission).where(SEARCHES.c.id == search_id))
    if text is None:
        raise NotFound(f"there is no search {search_id!r:.60} any more; GET /v1/searches lists yours")
    return Submission.from_json(text)


def names_of(search: Mapping[str, Any], submission: Submission) -> dict[str, str]:
    """The names of the uploaded files of a search by their digests, for the reader of whom it was read."""
    return {digest: search["files"][what] for what, digest in submission.uploads.items()}


def asked_texts(submission: Submission, names: Mapping[str, str]) -> dict[str, str]:
    """The model, cluster, target and objective, and all options that differ from their defaults, as texts by name."""
    texts = asked_of(submission.request)
    limits = {"measurements": submission.limits.measurements, "trials": submission.limits.trials}
    texts |= {name: str(value) for name, value in limits.items() if value is not None}
    if submission.labels:
        texts["labels"] = labels_text(submission.labels)
    return texts | {what: f"{names[digest]} (sha256:{digest[:8]})" for what, digest in submission.uploads.items()}


def labels_text(labels: Mapping[str, str]) -> str:
    """Labels in words.

    >>> labels_text({"gpu": "h100", "site": "a"})
    'gpu=h100, site=a'
    """
    return ", ".join(f"{name}={value}" for name, value in labels.items())
