"""Searches of a server whose database this machine does not reach: `RemoteSource`.

The trials of a search lie in a database of this machine, one for every search; what is new there is sent with every
renewal of the lease, so that another worker goes on from there.

    server ◀──claim, renew, finish──▶ worker ──▶ runner ──▶ trials.db
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from autoauto.database.leases import this_process
from autoauto.database.sqlite import file_url
from autoauto.records.errors import BadInput
from autoauto.server.client import Client, Refused
from autoauto.server.store.models import keep_upload
from autoauto.server.store.queue import Lease, Standing
from autoauto.server.store.searches import SearchState
from autoauto.server.store.study_copy import add_trials, head_of, read_trial, trial_texts, write_head
from autoauto.server.store.submission import SearchLimits, Submission
from autoauto.server.store.trials import number_of_study, study_name
from autoauto.study.store.database import open_storage
from autoauto.study.store.trial_storage import TrialStorage

N_TRIALS = 50
MAX_BYTES = 500_000
"""Maximum bytes of trials in one message; a longer trial is sent alone."""


class Unwelcome(BadInput):
    """The server takes no requests of this worker, now or later."""


class _Copy(NamedTuple):
    """The study of a search in a database of this machine, and how many of its trials the server has."""

    storage: TrialStorage
    n_sent: int


class RemoteSource:
    """A `Queue` by requests.

    Args:
        folder: for databases; emptied when another search begins.
    """

    def __init__(self, client: Client, folder: Path, labels: Mapping[str, str], max_running: int | None) -> None:
        self._client = client
        self._folder = folder
        self._claim = {"process": this_process(), "labels": dict(labels), "max_running": max_running}
        self._copy: _Copy | None = None

    def claim(self) -> Lease | None:
        """As `Queue.claim`.

        Raises:
            Unwelcome: this worker may run none at all.
        """
        try:
            given = self._client.ask("POST", "/v1/leases", self._claim)
        except Refused as error:
            if error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise Unwelcome(str(error)) from error
            raise
        if not given:
            return None
        limits = SearchLimits(**given.pop("limits"))
        submission = Submission.from_json(given.pop("submission"))
        return Lease(**given, limits=limits, submission=submission)

    def open(self, lease: Lease) -> str:
        """As `Queue.open`."""
        for what, digest in lease.submission.uploads.items():
            keep_upload(what, digest, partial(self._part, digest))
        for file in self._folder.iterdir():
            file.unlink()
        url = file_url(self._folder / f"{lease.search_id}.db").render_as_string()
        storage = open_storage(url)
        first = 0
        while True:
            page = self._client.ask("POST", f"/v1/leases/{lease.token}/trials", {"first": first})
            if page["head"] is not None:
                study_id = write_head(storage, study_name(lease.search_id), page["head"])
                add_trials(storage, study_id, first, list(map(read_trial, page["trials"])), lambda _: None)
            first += len(page["trials"])
            if not page["trials"]:
                break
        self._copy = _Copy(storage, first)
        return url

    def renew(self, lease: Lease, standing: Standing | None) -> bool | None:
        """As `Queue.renew`."""
        wants_stop: bool | None = False
        for new in self._news(lease):
            wants_stop = self._asked(lease, "renew", {"standing": standing, **new})
            if wants_stop is None:
                return None
            if self._copy is not None:
                self._copy = self._copy._replace(n_sent=new.get("first", 0) + len(new.get("trials", ())))
        return wants_stop

    def finish(
        self, lease: Lease, state: SearchState, answer: Mapping[str, Any] | None, reason: str, used_s: float
    ) -> bool:
        """As `Queue.finish`."""
        ending = {"state": state, "answer": answer, "reason": reason, "used_s": used_s}
        return self.renew(lease, None) is not None and self._asked(lease, "finish", ending) is not None

    def release(self, lease: Lease, reason: str = "", *, is_lost: bool = False) -> None:
        """As `Queue.release`."""
        if self.renew(lease, None) is not None:
            self._asked(lease, "release", {"reason": reason, "is_lost": is_lost})

    def _asked(self, lease: Lease, what: str, body: Mapping[str, Any]) -> bool | None:
        """Send a message about a lease; returns whether the search is to stop, None where the lease is lost."""
        try:
            plain = json.loads(msgspec.json.encode(body))
            return bool(self._client.ask("POST", f"/v1/leases/{lease.token}/{what}", plain).get("wants_stop"))
        except Refused as error:
            if error.status == HTTPStatus.CONFLICT:
                return None
            raise

    def _news(self, lease: Lease) -> Iterator[dict[str, Any]]:
        """Yield messages with the trials that the server does not have; one empty message if it has all."""
        copy = self._copy
        name = study_name(lease.search_id)
        study_id = None if copy is None else number_of_study(copy.storage, name)
        if copy is None or study_id is None:
            yield {}
            return
        first = copy.n_sent
        head = head_of(copy.storage, study_id)
        while True:
            texts = _first(trial_texts(copy.storage, study_id, first, N_TRIALS))
            yield {"head": head, "first": first, "trials": texts}
            first += len(texts)
            if not texts or first >= copy.storage.get_n_trials(study_id):
                return

    def _part(self, digest: str, number: int) -> bytes | None:
        try:
            path = f"/v1/models/{digest}/content?{urlencode({'part': number})}"
            return self._client.fetch("GET", path).content
        except Refused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise


def _first(texts: list[str]) -> list[str]:
    """The texts from the first on that are sent in one request."""
    n_bytes = 0
    for number, text in enumerate(texts):
        n_bytes += len(text)
        if n_bytes > MAX_BYTES and number:
            return texts[:number]
    return texts
