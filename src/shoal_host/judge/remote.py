"""What `shoal watch` shows of a judge at an address: its leaderboard, fetched now and then while a page is open.

A judge is a stranger: its answers are bounded in size and time, and count only if all of them has the right form.
"""

import threading
import time
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from shoal.config.display_name import harmless
from shoal.config.judge_address import parse_judge_address
from shoal.identity.keys import name_of
from shoal.untrusted import UNDECODABLE
from shoal_host.judge.client import BoundedHttp, JudgeUnavailable
from shoal_host.judge.source import ROWS, JudgeSource, judge_id, judge_summary
from shoal_web.watch.source import NAME, Data, Source

EVERY: Final = 15.0
"""Seconds between two requests, at least."""
PATIENCE: Final = 5.0
"""Seconds for an answer in all."""
MOST: Final = 4 << 20
"""Bytes of an answer."""
Count = Annotated[int, Meta(ge=0, le=2**53)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Row(msgspec.Struct):
    """Of a leaderboard, as `shoal_host.judge.reports.leaderboard_of` makes them."""

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
    display_name: str = ""


class Health(msgspec.Struct):
    """The part of `/health` that is shown."""

    refused: dict[str, Count] = {}


class RemoteJudge(Source):
    """The judge at `address` (http://HOST:PORT). Raises `UserError` for other texts."""

    kind = "judge"
    live_for = JudgeSource.live_for

    def __init__(self, address: str) -> None:
        self._url, _ = parse_judge_address(address)
        self.title = f"judge: {urlsplit(self._url).netloc}"
        self.id = judge_id(self._url)
        self._http = BoundedHttp(self._url, PATIENCE, MOST)
        self._lock = threading.Lock()
        self._due = 0.0
        self._rows: list[Row] = []
        self._health = Health()
        self._trouble = ""
        self._answered = 0.0

    def look(self) -> None:
        """Asks on a thread of its own, if it is time to."""
        if time.monotonic() >= self._due and not self._lock.locked():
            threading.Thread(target=self._ask, name="shoal-watch-judge", daemon=True).start()

    def changed(self) -> float:
        return max((row.time for row in self._rows), default=0.0)

    def summary(self) -> Data:
        """The leaderboard of the judge's last answer."""
        self._ask()
        rows = list(self._rows)
        asked, lapsed = sum(row.questions for row in rows), sum(row.lapsed for row in rows)
        right = round(sum(row.questions * (row.value or 0.0) for row in rows))
        totals = {"right": right, "wrong": max(0, asked - lapsed - right), "lapsed": lapsed}
        totals |= {"void": sum(row.void for row in rows), "nodes": len({row.key for row in rows})}
        refused = sorted(self._health.refused.items(), key=lambda one: -one[1])[:ROWS]
        ago = f"; its last answer was {time.time() - self._answered:.0f} s ago" if self._answered else ""
        return {
            **self.brief(),
            **judge_summary([_shown(rank, row) for rank, row in enumerate(rows, 1)], totals),
            "curves": False,
            "refused": {reason[:NAME]: count for reason, count in refused},
            "about": "The leaderboard that the judge serves: each node's last 100 rounds. Curves need its data folder: "
            "shoal watch --judge DIR.",
            "trouble": f"{self._trouble}{ago}" if self._trouble else "",
        }

    def close(self) -> None:
        self._http.close()

    def _ask(self) -> None:
        with self._lock:
            if time.monotonic() < self._due:
                return
            rows, trouble = self._rows, ""
            try:
                fetched = self._fetch("leaderboard", list[Row])[:ROWS]
                self._health = self._fetch("health", Health)
                rows, self._answered = fetched, time.time()
            except JudgeUnavailable as error:
                trouble = f"{self._url}: {error}"
            except (*UNDECODABLE, ValueError) as error:
                trouble = f"the answer of {self._url} is no judge's leaderboard: {str(error)[:NAME]}"
            self.version += (rows, trouble) != (self._rows, self._trouble)
            self._rows, self._trouble = rows, trouble
            self._due = time.monotonic() + EVERY

    def _fetch(self, path: str, kind: Any) -> Any:
        status, data = self._http.request("GET", path, None, time.monotonic() + PATIENCE)
        if status != 200:
            raise ValueError(f"HTTP {status}")
        return msgspec.json.decode(data, type=kind)


def _shown(rank: int, row: Row) -> Data:
    """As a judge's folder gives it. The readable name is made of the key, whatever the judge says."""
    name = name_of(bytes.fromhex(row.key))
    return {
        "rank": rank,
        "node": name,
        **msgspec.to_builtins(row),
        "model": row.model[:NAME],
        "display_name": harmless(row.display_name),
    }


def open_judge(at: str) -> Source:
    """The judge of `shoal watch --judge`: its data folder, or its address. Raises `UserError`."""
    return RemoteJudge(at) if "://" in at else JudgeSource(Path(at))
