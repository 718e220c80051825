"""The addresses under `/api`: what a `Source` tells, as JSON. Parameters are bounded by the models of `source.py`."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from shoal.apps.watch.source import (
    CurveQuery,
    GraphQuery,
    MissingError,
    Parameters,
    RolloutQuery,
    RowQuery,
    Source,
    Sources,
    TaskQuery,
    TextQuery,
)
from shoal.apps.watch.tables import BusyError

LISTED = 500
"""Sources in the list."""
THREADS, EACH = 120, 12
"""Requests that are answered at a time, and of them about one source: one that takes long stops no other."""


class Nothing(Parameters):
    """No parameters."""


ASKED: dict[str, tuple[type[BaseModel], Callable[[Source, Any], Any]]] = {
    "summary": (Nothing, lambda source, _: source.summary()),
    "curve": (CurveQuery, lambda source, query: source.curve(query)),
    "tasks": (TaskQuery, lambda source, query: source.tasks(query)),
    "graph": (GraphQuery, lambda source, query: source.graph(query)),
    "rollouts": (RolloutQuery, lambda source, query: source.rollouts(query)),
    "rollout": (RowQuery, lambda source, query: source.rollout(query)),
    "text": (TextQuery, lambda source, query: source.text(query)),
}


def api_routes(sources: Sources) -> list[Route]:
    """`/api/runs` and `/api/runs/ID/WHAT` for each of `ASKED`."""

    under_way = Counter[str]()

    async def listed(request: Request) -> Response:
        def brief() -> Any:
            return {"runs": [source.brief() for source in sources.all()[:LISTED]]}

        return await _answered(request, Nothing, lambda _: brief())

    async def asked(request: Request) -> Response:
        what = ASKED.get(request.path_params["what"])
        if what is None:
            return json_response({"error": "there is no such thing"}, 404)
        model, ask = what
        id = request.path_params["id"]
        if under_way[id] >= EACH:
            return json_response({"error": "too much is asked of this run at a time; ask again"}, 503)
        under_way[id] += 1
        try:
            return await _answered(request, model, lambda query: ask(sources.get(id), query))
        finally:
            under_way[id] -= 1
            if not under_way[id]:
                del under_way[id]

    return [Route("/api/runs", listed), Route("/api/runs/{id:str}/{what:str}", asked)]


async def _answered(request: Request, model: type[BaseModel], ask: Callable[[Any], Any]) -> Response:
    """What `ask` says, on a thread, or what is wrong."""
    given = request.query_params.multi_items()
    try:
        if len(dict(given)) != len(given):
            return json_response({"error": "a parameter is given twice"}, 400)
        query = model.model_validate(dict(given))
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, wrong["loc"]))[:100]
        return json_response({"error": f"{where}: {wrong['msg']}"}, 400)
    try:
        return json_response(await anyio.to_thread.run_sync(ask, query, limiter=_limit()))
    except MissingError as error:
        return json_response({"error": str(error)}, 404)
    except BusyError as error:
        return json_response({"error": str(error)}, 503)


@functools.cache
def _limit() -> anyio.CapacityLimiter:
    return anyio.CapacityLimiter(THREADS)


def json_response(data: Any, status: int = 200) -> Response:
    """msgspec writes NaN and infinities as null."""
    return Response(msgspec.json.encode(data), status, media_type="application/json")
