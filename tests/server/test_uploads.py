"""Uploaded files: whose they are, how much a user may have, what is left of failed ones, and what is read on a disk."""

from __future__ import annotations

import hashlib
import io
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from sqlalchemy import func, select, text, update

from autoauto.records.errors import BadInput
from autoauto.records.files.uploads import uploaded_file, uploaded_path
from autoauto.server.store import models
from autoauto.server.store.models import (
    OverQuota,
    delete_left,
    delete_model,
    fetch_uploads,
    list_models,
    read_model,
    store_model,
)
from autoauto.server.store.room import check_room
from autoauto.server.store.searches import Conflict, NotFound, list_searches, read_search, stop_search, submit
from autoauto.server.store.submission import Submission
from autoauto.server.store.tables import MODEL_PARTS, MODELS, UPLOADS, ServiceDatabase, StorageFull
from autoauto.server.store.users import Role, User
from tests.server.conftest import JOHN, MARY, ROOT_USER, Start, small
from tests.server.test_queue import read_request

READER = User("reader", Role.READER)
StartWorker = Callable[..., Any]


def stored(database: ServiceDatabase, user: User, content: bytes, name: str = "", quota_bytes: int = 1 << 30) -> str:
    """The digest of a content that a user uploads."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        return store_model(database, user, cast("BinaryIO", file), name, quota_bytes).digest


def n_parts(database: ServiceDatabase) -> int:
    count = select(func.count()).select_from(MODEL_PARTS)
    return database.write(lambda connection: connection.scalar(count)) or 0


def n_unfinished(database: ServiceDatabase) -> int:
    count = select(func.count()).select_from(UPLOADS)
    return database.write(lambda connection: connection.scalar(count)) or 0


def submission(digest: str) -> Submission:
    return Submission.of(read_request(small(model=f"sha256:{digest}")))


def model_bytes(weight: TensorProto | None = None) -> bytes:
    """A model of one product, whose weight is in it unless another tensor is given."""
    here = numpy_helper.from_array(np.random.default_rng(7).standard_normal((64, 64)).astype(np.float32), "w")
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 64]) for name in ("x", "y")]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight or here]
    )
    opsets = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def thief(location: str) -> bytes:
    """A model whose weight is said to lie in another file."""
    weight = TensorProto(name="w", data_type=1, dims=[64, 64], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    return model_bytes(weight)


def test_a_model_that_names_another_file_is_not_taken(database: ServiceDatabase) -> None:
    digest = stored(database, MARY, model_bytes())
    for location in (f"{digest}/model.onnx", f"../{digest}/model.onnx", "/etc/passwd", "model.onnx"):
        with pytest.raises(BadInput, match="one file with its weights"):
            stored(database, JOHN, thief(location))
    assert n_parts(database) == 1


def test_a_file_is_its_owners_alone_whoever_knows_the_digest(database: ServiceDatabase) -> None:
    digest = stored(database, MARY, b"content", "net.onnx")
    for refused in (lambda: read_model(database, JOHN, digest), lambda: delete_model(database, JOHN, digest)):
        with pytest.raises(NotFound):
            refused()
    with pytest.raises(BadInput, match="must be uploaded first"):
        submit(database, JOHN, submission(digest))
    assert list_searches(database, MARY).entries == []  # nothing is left of it
    assert list_models(database, JOHN).entries == []
    assert [each["name"] for each in list_models(database, MARY).entries] == ["net.onnx"]
    assert read_model(database, ROOT_USER, digest)["owner"] == "mary"


def test_two_users_hold_one_content_under_names_of_their_own(database: ServiceDatabase) -> None:
    digest = stored(database, MARY, b"content", "secret plan.onnx")
    assert stored(database, JOHN, b"content", "net.onnx") == digest
    assert n_parts(database) == 1
    search_id = submit(database, MARY, submission(digest)).search_id
    assert submit(database, JOHN, submission(digest)).search_id == search_id
    names = [read_search(database, user, search_id)["model_name"] for user in (MARY, JOHN)]
    assert names == ["secret plan.onnx", "net.onnx"]
    delete_model(database, ROOT_USER, stored(database, MARY, b"other"))
    with pytest.raises(Conflict, match=f"search {search_id} needs it"):
        delete_model(database, MARY, digest)
    stop_search(database, MARY, search_id)
    stop_search(database, JOHN, search_id)
    delete_model(database, MARY, digest)
    assert n_parts(database) == 1  # it is john's too
    delete_model(database, JOHN, digest)
    assert n_parts(database) == 0
    assert read_search(database, MARY, search_id)["model_name"] == "secret plan.onnx"


def test_who_sees_a_shared_search_exports_an_uploaded_model_only_where_its_owner_says_so(
    database: ServiceDatabase,
) -> None:
    digest = stored(database, MARY, b"content", "net.onnx")
    search_id = submit(database, MARY, submission(digest), is_shared=True).search_id
    may = [read_search(database, user, search_id)["may_export"] for user in (MARY, JOHN, READER, ROOT_USER)]
    assert may == [True, False, False, True]
    submit(database, MARY, submission(digest), is_shared=True, with_weights=True)
    assert read_search(database, READER, search_id)["may_export"]
    assert read_search(database, READER, search_id)["model_name"] == "net.onnx"
    submit(database, MARY, submission(digest), is_shared=True)  # and takes it back
    assert not read_search(database, READER, search_id)["may_export"]
    builtin = submit(database, MARY, Submission.of(read_request(small())), is_shared=True).search_id
    assert read_search(database, READER, builtin)["may_export"]


def test_a_user_has_a_quota_which_counts_what_he_holds(database: ServiceDatabase) -> None:
    first = stored(database, MARY, bytes(600), quota_bytes=1000)
    assert stored(database, MARY, bytes(600), quota_bytes=1000) == first
    with pytest.raises(OverQuota, match=r"have 1000 B together at most, yours have 600 B and this file 401 B; delete"):
        stored(database, MARY, bytes(401), quota_bytes=1000)
    assert n_parts(database) == 1
    stored(database, JOHN, bytes(401), quota_bytes=1000)
    with pytest.raises(OverQuota):  # also where another has it already
        stored(database, MARY, bytes(401), quota_bytes=1000)
    delete_model(database, MARY, first)
    stored(database, MARY, bytes(401), quota_bytes=1000)


def test_nothing_is_left_of_an_upload_that_fails_on_its_way(
    database: ServiceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_part = models._add_part

    def full(upload: str, number: int, *rest: Any) -> None:
        if number == 2:
            raise StorageFull("no room")
        add_part(upload, number, *rest)

    monkeypatch.setattr(models, "_add_part", full)
    with pytest.raises(StorageFull):
        stored(database, MARY, bytes(3 << 20))
    assert (n_parts(database), n_unfinished(database)) == (0, 0)
    assert list_models(database, MARY).entries == []


@pytest.mark.parametrize("left", [{"written_s": 0.0}, {"process": "gone"}])
def test_what_a_killed_server_left_is_deleted_and_what_another_writes_is_not(
    database: ServiceDatabase, left: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "is_gone", lambda process: process == "gone")
    with tempfile.TemporaryFile() as file:
        file.write(b"content")
        with models._written(database, cast("BinaryIO", file)):
            delete_left(database)
            assert n_parts(database) == 1
            database.write(lambda connection: connection.execute(update(UPLOADS).values(left)))
            delete_left(database)
            assert (n_parts(database), n_unfinished(database)) == (0, 0)


def test_an_upload_that_was_given_up_meanwhile_is_not_taken_for_whole(
    database: ServiceDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_part = models._add_part

    def slow(*args: Any) -> None:
        add_part(*args)
        args[-1].execute(UPLOADS.delete())

    monkeypatch.setattr(models, "_add_part", slow)
    with pytest.raises(Conflict, match="send it again"):
        stored(database, MARY, b"content")
    assert list_models(database, MARY).entries == []


def test_what_is_damaged_in_the_database_or_on_a_disk_is_never_read(
    database: ServiceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path))
    content = model_bytes()
    digest = stored(database, MARY, content)
    path, name = uploaded_path("model", digest), f"sha256:{digest}"
    for damaged in (None, b"", content[:-1], thief("/etc/passwd")):
        if damaged is not None:
            path.write_bytes(damaged)
        with pytest.raises(BadInput, match="as it was uploaded"):
            uploaded_file("model", name)
        fetch_uploads(database, {"model": digest})
        assert uploaded_file("model", name) == str(path)
        assert path.read_bytes() == content
        assert [each.name for each in path.parent.iterdir()] == ["model.onnx"]
    path.unlink()
    database.write(lambda connection: connection.execute(update(MODEL_PARTS).values(content=b"damaged")))
    with pytest.raises(BadInput, match="upload it again"):
        fetch_uploads(database, {"model": digest})
    stored(database, MARY, content)
    fetch_uploads(database, {"model": digest})
    assert path.read_bytes() == content
    assert n_parts(database) == 1
    assert [each.name for each in path.parent.parent.iterdir()] == [digest]  # and no temporary folder


def test_a_model_that_came_past_the_door_is_not_written_either(
    database: ServiceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(models, "refuse_other_files", lambda file: None)
    digest = stored(database, MARY, thief("/etc/passwd"))
    with pytest.raises(BadInput, match="one file with its weights"):
        fetch_uploads(database, {"model": digest})
    assert not uploaded_path("model", digest).exists()


def test_a_full_database_says_so_and_health_too(sqlite_storage: str) -> None:
    database = ServiceDatabase(sqlite_storage)
    check_room(database)
    n_pages = database.write(lambda connection: connection.scalar(text("PRAGMA page_count")))

    def full(connection: Any) -> None:
        connection.execute(text(f"PRAGMA max_page_count = {n_pages}"))
        connection.execute(MODELS.insert(), [{"digest": f"{n}", "upload": "u" * 32, "n_bytes": n} for n in range(9999)])

    with pytest.raises(StorageFull, match="free some of it"):
        database.write(full)
    with pytest.raises(StorageFull, match="within the last 60 s"):
        check_room(database)
    database.close()


def test_requests_and_health_say_that_the_folder_for_temporary_files_is_gone(
    sqlite_storage: str, tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    server = start(sqlite_storage, "--no-worker", "--open")
    mary = server.caller("mary")
    assert mary("GET", "/health").status == 200
    for each in sorted(folder.rglob("*"), reverse=True):
        each.rmdir() if each.is_dir() else each.unlink()
    folder.rmdir()
    for reply in (mary("GET", "/health"), mary("POST", "/v1/models", b"content")):
        assert reply.status == 507
        assert "set TMPDIR" in reply.body["detail"]
    folder.mkdir()
    assert mary("POST", "/v1/models?name=a.onnx", b"content").status == 201
    assert mary("GET", "/v1/models").body["models"][0]["name"] == "a.onnx"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_uploaded_model_is_exported_where_the_worker_is_elsewhere_and_by_whom_its_owner_says(
    storage: str, start: Start, start_worker: StartWorker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "server"))
    server = start(storage, "--no-worker")
    monkeypatch.setenv("AUTOAUTO_CACHE_DIR", str(tmp_path / "worker"))
    start_worker(storage)
    mary, john = server.caller("mary"), server.caller("john")
    content = model_bytes()
    named = mary("POST", "/v1/models?name=my%20net.onnx", content).body["model"]
    wanted = small(model=named, shared=True)
    search_id = mary("POST", "/v1/searches", wanted).body["id"]
    assert mary.ended(search_id)["state"] == "finished"
    export = f"/v1/searches/{search_id}/export?to=onnx"
    reply = mary("GET", export)
    assert reply.status == 200
    with zipfile.ZipFile(io.BytesIO(reply.body)) as archive:
        assert archive.read("README.md").startswith(b"# my net for ")
        [weight] = onnx.load_model_from_string(archive.read("stage0.onnx")).graph.initializer
    assert weight.raw_data == onnx.load_model_from_string(content).graph.initializer[0].raw_data
    explained = john("GET", f"/v1/searches/{search_id}/explain").body.decode()
    assert "autoauto measure 'my net.onnx' --cluster c600" in explained
    refused = john("GET", export)
    assert (refused.status, "share_weights" in refused.body["detail"]) == (403, True)
    assert mary("POST", "/v1/searches", {**wanted, "share_weights": True}).body["id"] == search_id
    assert john("GET", export).status == 200
    digest = hashlib.sha256(content).hexdigest()
    assert mary("DELETE", f"/v1/models/{digest}").status == 204
    assert mary("GET", export).status == 400  # it says to upload it again
