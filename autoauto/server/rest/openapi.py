"""The OpenAPI document of the table of routes: `openapi_document`."""

from __future__ import annotations

from typing import Any

from autoauto.records.installation import VERSION
from autoauto.server.pages.session import COOKIE
from autoauto.server.rest.parameters import TEXT, Schema
from autoauto.server.rest.routes import PARAMETERS, ROUTES, BodyKind, Route
from autoauto.server.rest.schemas import SCHEMAS, ref


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document of the table."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "autoauto",
            "version": VERSION,
            "description": "Searches for the configuration of a cluster with the highest throughput, as a service.",
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "cookie": {"type": "apiKey", "in": "cookie", "name": COOKIE},
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    parameters = []
    for part in route.path.split("/"):
        if part.startswith("{"):
            name = part[1:-1]
            parameters.append({"name": name, "in": "path", "required": True, "schema": PARAMETERS[name]})
    for name, schema in route.query.items():
        parameters.append({"name": name, "in": "query", "schema": schema})
    responses = {str(code): _response(route.media, schema) for code, schema in route.codes.items()}
    errors = {400, 429, 500, 503, 507, *route.errors}
    if route.role:
        errors |= {401, 403}
    if route.body is not BodyKind.NOTHING:
        errors |= {408, 413, 415}
    responses |= {str(code): _response("application/problem+json", ref("Problem")) for code in sorted(errors)}
    if route.body in (BodyKind.FORM, BodyKind.FORM_WITH_FILES):  # with what is wrong beside its field
        responses["400"]["content"]["text/html"] = {"schema": TEXT}
    operation: dict[str, Any] = {
        "operationId": route.answer.__name__,
        "summary": str(route.answer.__doc__).partition("\n")[0].removesuffix("."),
        "parameters": parameters,
        "responses": responses,
        "security": [],
    }
    if route.role:
        operation["security"] = [{"token": []}, {"cookie": []}]
        operation["description"] = f"For the role {route.role} and those above it."
    if route.body is not BodyKind.NOTHING:
        content: Schema = route.content
        if route.body is BodyKind.FILE:
            content = {"type": "string", "format": "binary"}
        operation["requestBody"] = {"required": True, "content": {route.body.value: {"schema": content}}}
    return operation


def _response(media: str, schema: Schema) -> dict[str, Any]:
    if not schema:
        return {"description": "done"}
    return {"description": "as the schema says", "content": {each: {"schema": schema} for each in media.split()}}
