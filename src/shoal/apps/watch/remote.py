"""A judge at an address as a source: its leaderboard, asked for now and then, while somebody looks.

A judge is a stranger: what it says is bounded in size and time, and counts only if all of it is what it should be.
"""

from __future__ import annotations

import threading
import time
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec
from msgspec import Meta

from shoal.apps.watch.judge import LIVE, ROWS, judge_id, judge_summary
from shoal.apps.watch.source import (
    NAME,
    CurveQuery,
    Data,
    GraphQuery,
    MissingError,
    TaskQuery,
    WithoutRollouts,
    brief_of,
)
from shoal.evaluation.judge_client import parse_judge_address
from shoal.identity.keys import name_of

EVERY: Final = 15.0
"""Seconds between two requests, at least."""
PATIENCE: Final = 5.0
"""Seconds for an answer in all."""
MOST: Final = 4 << 20
"""Bytes of an answer."""
Count = Annotated[int, Meta(ge=0, le=2**53)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Row(msgspec.Struct):
    """Of a leaderboard, as `shoal.apps.judge.reports.leaderboard_of` makes them."""

    key: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    model: str
    in_swarm: bool | None
    value: Share | None = msgspec.field(name="pass@1")
    low: Share
    high: Share
    questions: Count
    lapsed: Count
    void: Count
    round: Count
    time: Annotated[float, Meta(ge=0, le=2**53)]


class Health(msgspec.Struct):
    """What `/health` says that is shown."""

    refused: dict[str, Count] = {}
    under_way: Count = 0


class RemoteJudge(WithoutRollouts):
    """The judge at `address` (http://HOST:PORT). Raises `UserError` for what is no address."""

    kind = "judge"

    def __init__(self, address: str) -> None:
        self._url, _ = parse_judge_address(address)
        self.title = f"judge: {urlsplit(self._url).netloc}"
        self.id = judge_id(self._url)
        self.version = 0
        local = urlsplit(self._url).hostname in ("localhost", "127.0.0.1", "::1")  # which no proxy reaches
        self._http = httpx2.Client(timeout=PATIENCE, trust_env=not local, headers={"Accept-Encoding": "identity"})
        self._lock = threading.Lock()
        self._due = 0.0
        self._rows: list[Row] = []
        self._health = Health()
        self._trouble = ""
        self._heard = 0.0

    def look(self) -> None:
        """Asks on a thread of its own, if it is time to."""
        if time.monotonic() >= self._due and not self._lock.locked():
            threading.Thread(target=self._ask, name="shoal-window-judge", daemon=True).start()

    def brief(self) -> Data:
        return brief_of(self, max((row.time for row in self._rows), default=0.0), LIVE)

    def summary(self) -> Data:
        """The leaderboard as the judge told it last."""
        self._ask()
        rows = list(self._rows)
        asked, lapsed = sum(row.questions for row in rows), sum(row.lapsed for row in rows)
        right = round(sum(row.questions * (row.value or 0.0) for row in rows))
        totals = {"right": right, "wrong": max(0, asked - lapsed - right), "lapsed": lapsed}
        totals |= {"void": sum(row.void for row in rows), "nodes": len({row.key for row in rows})}
        refused = sorted(self._health.refused.items(), key=lambda one: -one[1])[:ROWS]
        ago = f"; this is what it said {time.time() - self._heard:.0f} s ago" if self._heard else ""
        return {
            **self.brief(),
            **judge_summary([_shown(rank, row) for rank, row in enumerate(rows, 1)], totals),
            "version": self.version,
            "curves": False,
            "refused": {reason[:NAME]: count for reason, count in refused},
            "about": "The leaderboard, as the judge tells it. Curves are in its data folder: shoal watch --judge DIR.",
            "trouble": f"{self._trouble}{ago}" if self._trouble else "",
        }

    def curve(self, query: CurveQuery) -> Data:
        raise MissingError("a judge at an address tells its leaderboard alone")

    def tasks(self, query: TaskQuery) -> Data:
        raise MissingError("a judge at an address tells its leaderboard alone")

    def graph(self, query: GraphQuery) -> Data:
        raise MissingError("a judge does not know who learns from whom")

    def close(self) -> None:
        self._http.close()

    def _ask(self) -> None:
        with self._lock:
            if time.monotonic() < self._due:
                return
            try:
                rows = self._fetch("leaderboard", list[Row])[:ROWS]
                self._health = self._fetch("health", Health)
                self._trouble, self._heard = "", time.time()
                changed, self._rows = rows != self._rows, rows
            except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as error:
                trouble = f"{self._url} cannot be reached ({type(error).__name__})"
                changed, self._trouble = trouble != self._trouble, trouble
            except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
                trouble = f"what {self._url} answers is no judge's leaderboard: {str(error)[:NAME]}"
                changed, self._trouble = trouble != self._trouble, trouble
            self.version += changed
            self._due = time.monotonic() + EVERY

    def _fetch(self, path: str, kind: Any) -> Any:
        end = time.monotonic() + PATIENCE
        data = bytearray()
        with self._http.stream("GET", f"{self._url}/{path}") as response:
            for chunk in response.iter_raw():
                data += chunk
                if len(data) > MOST or time.monotonic() > end:
                    raise ValueError("it is too long, or takes too long")
        if response.status_code != 200:
            raise ValueError(f"HTTP {response.status_code}")
        return msgspec.json.decode(data, type=kind)


def _shown(rank: int, row: Row) -> Data:
    """As a judge's folder gives it. The readable name is made of the key, whatever the judge says it is."""
    name = name_of(bytes.fromhex(row.key))
    return {"rank": rank, "node": name, **msgspec.to_builtins(row), "model": row.model[:NAME]}
