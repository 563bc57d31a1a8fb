"""Notes, figures and files of a study, stored where Optuna's dashboard reads them: `DashboardFiles`."""

from __future__ import annotations

import json
import mimetypes
import uuid
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from optuna.artifacts import FileSystemArtifactStore
from optuna.trial import Trial

from autoauto.records.errors import BadInput
from autoauto.study.store.database import database_of, through_restarts
from autoauto.study.store.study import join_study

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_DIGEST = "autoauto:board"
"""The system attribute of a study with the digest of the content that was written completely."""


class DashboardFiles:
    """Writes what a study shows in the dashboard besides its trials; writing the same again changes nothing.

    The id of a figure is its name, and that of a file is made of its trial and its name, so a later version replaces an
    earlier one.

    Args:
        folder: of the files; created when it does not exist.

    Attributes:
        study_id: the number of the study there, part of addresses of the dashboard.

    Raises:
        BadInput: the database or the folder cannot be used.
    """

    def __init__(self, storage: str, study_name: str, folder: Path) -> None:
        self._study = join_study(storage, study_name)
        self.backend, self.study_id = database_of(self._study)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(f"the folder {folder} cannot be made: {error.strerror}; try another --artifacts") from error
        self._folder, self.files = folder, FileSystemArtifactStore(folder)

    @through_restarts
    def shows(self, digest: str) -> bool:
        """True if the content with this digest was written completely, and the files still exist."""
        known = self.backend.get_study_system_attrs(self.study_id).get(_DIGEST)
        return bool(known == digest and any(self._folder.iterdir()))

    @through_restarts
    def finish(self, digest: str) -> None:
        """Note that the content with this digest was written completely."""
        self.backend.set_study_system_attr(self.study_id, _DIGEST, digest)

    @through_restarts
    def note(self, text: str, number: int | None = None) -> None:
        """Write a note in Markdown for the trial `number`, or for the study."""
        from optuna_dashboard import get_note, save_note

        subject = self._study if number is None else Trial(self._study, self._trial_id(number))
        if get_note(subject) != text:
            save_note(subject, text)

    @through_restarts
    def figure(self, name: str, figure: Figure) -> None:
        """Write a Plotly figure of the study under the id `name`."""
        from optuna_dashboard import save_plotly_graph_object

        save_plotly_graph_object(self._study, figure, graph_object_id=name)

    @through_restarts
    def file(self, number: int, name: str, content: bytes) -> str:
        """Write a file of the trial `number`; returns the address at which the dashboard serves it.

        Optuna's `upload_artifact` refuses finished trials. The dashboard also lists the artifacts that the study's
        system attributes name, as its first versions wrote them.
        """
        from optuna_dashboard.artifact import get_artifact_path

        trial_id = self._trial_id(number)
        artifact_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._study.study_name}/{number}/{name}"))
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        description = {"artifact_id": artifact_id, "filename": name, "mimetype": kind, "encoding": None}
        self.files.write(artifact_id, BytesIO(content))
        key = f"dashboard:artifacts:{trial_id}:{artifact_id}"
        self.backend.set_study_system_attr(self.study_id, key, json.dumps(description))
        return str(get_artifact_path(Trial(self._study, trial_id), artifact_id))

    def _trial_id(self, number: int) -> int:
        return self.backend.get_trial_id_from_study_id_trial_number(self.study_id, number)
