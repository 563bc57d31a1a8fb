"""What a service stands on, in lines: `check_lines`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from sqlalchemy import and_, func, not_, select

from autoauto.records.units import format_bytes
from autoauto.server.store.room import folders
from autoauto.server.store.searches import SearchState, count_states
from autoauto.server.store.tables import LEASES, SCHEMA, SEARCHES, ServiceDatabase
from autoauto.server.store.users import list_tokens


def check_lines(database: ServiceDatabase) -> Iterator[str]:
    """The database and its schema, which were opened; tokens, searches, workers that run one, and free disk space."""
    yield f"database: {database.shown} answers"
    yield f"schema: {SCHEMA}"
    states = [token.state for token in list_tokens(database)]
    yield f"tokens: {states.count('in force')} in force, {len(states) - states.count('in force')} ended"
    yield f"searches: {', '.join(f'{n} {state}' for state, n in count_states(database).items())}"
    held = and_(SEARCHES.c.state == SearchState.RUNNING, not_(LEASES.are_free(database.now())))
    n_workers = database.scalar(select(func.count(SEARCHES.c.process.distinct())).where(held))
    yield f"workers: {n_workers} run a search now; those that wait for one leave no trace"
    for what, folder in folders(database):
        yield f"disk: {format_bytes(shutil.disk_usage(folder).free)} free for {what}"
