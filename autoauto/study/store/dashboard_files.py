"""Notes, figures and files of a study, kept where Optuna's dashboard shows them."""

from __future__ import annotations

import json
import mimetypes
import uuid
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import optuna
from optuna.artifacts import FileSystemArtifactStore
from optuna.trial import Trial

from autoauto.records.errors import BadInput
from autoauto.study.store.database import open_storage, storage_errors

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


_DIGEST = "autoauto:board"


class Board:
    """What a study shows in the dashboard besides its trials; writing the same again changes nothing.

    Figures have fixed ids and files have ids made of what they are, so that what is written later replaces what was
    written before.

    Args:
        storage: URL of the study's database.
        study_name: its name there.
        folder: where files are kept, made when it is not there.

    Raises:
        BadInput: the database or the folder cannot be used.
    """

    def __init__(self, storage: str, study_name: str, folder: Path) -> None:
        self.backend = open_storage(storage)
        with storage_errors(f"study {study_name!r}"):
            self._study = optuna.load_study(study_name=study_name, storage=self.backend)
            self._study_id = self.backend.get_study_id_from_name(study_name)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"the folder {folder} cannot be made: {error.strerror}; try another --artifacts") from error
        self._folder, self.files = folder, FileSystemArtifactStore(folder)

    @storage_errors()
    def shows(self, digest: str) -> bool:
        """Whether all was written of what has this digest, and there still are files."""
        known = self.backend.get_study_system_attrs(self._study_id).get(_DIGEST)
        return bool(known == digest and any(self._folder.iterdir()))

    @storage_errors()
    def finish(self, digest: str) -> None:
        """Remember that all was written."""
        self.backend.set_study_system_attr(self._study_id, _DIGEST, digest)

    @storage_errors()
    def note(self, text: str, number: int | None = None) -> None:
        """Keep a note in Markdown on the trial `number`, or on the study."""
        from optuna_dashboard import get_note, save_note

        place = self._study if number is None else Trial(self._study, self._trial_id(number))
        if get_note(place) != text:
            save_note(place, text)

    @storage_errors()
    def figure(self, name: str, figure: Figure) -> None:
        """Keep a Plotly figure on the study under the id `name`; replaces what was there."""
        from optuna_dashboard import save_plotly_graph_object

        save_plotly_graph_object(self._study, figure, graph_object_id=name)

    @storage_errors()
    def file(self, number: int, name: str, content: bytes) -> str:
        """Keep a file with the trial `number` and return the address at which the dashboard serves it.

        Optuna's own `upload_artifact` refuses trials that are finished. The dashboard also lists what the study's
        attributes name for a trial, as its first versions wrote it.
        """
        from optuna_dashboard.artifact import get_artifact_path

        trial_id = self._trial_id(number)
        artifact_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._study.study_name}/{number}/{name}"))
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        told = {"artifact_id": artifact_id, "filename": name, "mimetype": kind, "encoding": None}
        self.files.write(artifact_id, BytesIO(content))
        key = f"dashboard:artifacts:{trial_id}:{artifact_id}"
        self.backend.set_study_system_attr(self._study_id, key, json.dumps(told))
        return str(get_artifact_path(Trial(self._study, trial_id), artifact_id))

    def _trial_id(self, number: int) -> int:
        return self.backend.get_trial_id_from_study_id_trial_number(self._study_id, number)
