"""Archives and lists of members that somebody made to harm whoever reads them."""

from __future__ import annotations

import http.server
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archives import NOW, START, SWARM, TASKS, envelope, rows_of, tasks_of, write_archive
from msgspec import structs

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.transports.base import TransportContext
from shoal.transports.memory import MemorySwarm
from shoal.wire.rollouts import open_envelope, seal
from shoal_extras.archive.contents import signed_rows
from shoal_extras.archive.experience import SWARMS, Experience
from shoal_extras.archive.format import GROUPS, SCHEMAS, Row, begin, parts_of, write_part
from shoal_extras.archive.merge import rewrite, withdraw
from shoal_extras.archive.reader import read_groups
from shoal_extras.archive.verify import verify
from shoal_extras.archive.worker import examine
from shoal_extras.places import members

ADA, EVE = Identity.generate(), Identity.generate()


def many_copies(row: dict[str, Any], path: Path) -> None:
    """A text of a megabyte, stored once, that stands in 640 rows."""
    rows = pa.Table.from_pylist([row | {"prompt": "x" * (1 << 20)}] * 64, SCHEMAS[GROUPS])
    with pq.ParquetWriter(path, SCHEMAS[GROUPS], compression="zstd", dictionary_pagesize_limit=1 << 24) as writer:
        writer.write_table(pa.concat_tables([rows] * 10), row_group_size=1 << 20)


def nested(row: dict[str, Any], path: Path) -> None:
    kind: pa.DataType = pa.string()
    for _ in range(60):
        kind = pa.struct([("a", kind)])
    pq.write_table(pa.table({"prompt": pa.nulls(1000, kind)}), path)


def many_columns(row: dict[str, Any], path: Path) -> None:
    pq.write_table(pa.table({f"c{number}": [1] for number in range(5000)}), path)


def many_row_groups(row: dict[str, Any], path: Path) -> None:
    with pq.ParquetWriter(path, SCHEMAS[GROUPS]) as writer:
        for _ in range(1100):
            writer.write_table(pa.Table.from_pylist([row], SCHEMAS[GROUPS]))


def no_values(row: dict[str, Any], path: Path) -> None:
    """A row group of three million rows in some kilobytes."""
    table = pa.Table.from_pylist([dict.fromkeys(row)], SCHEMAS[GROUPS])
    rows = pa.Table.from_arrays([pa.nulls(3 << 20, field.type) for field in table.schema], schema=table.schema)
    pq.write_table(rows, path, row_group_size=1 << 22, compression="zstd")


@pytest.mark.parametrize("bomb", [many_copies, nested, many_columns, many_row_groups, no_values])
def test_a_bomb_is_one_line(bomb: Callable[[dict[str, Any], Path], None], tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "lagoon", [envelope(ADA, 0)])
    [name] = parts_of(archive)
    bomb(pq.read_table(archive / GROUPS / name).to_pylist()[0], archive / GROUPS / name)
    with pytest.raises(UserError, match="cannot read") as caught:
        list(read_groups(archive))
    assert "\n" not in str(caught.value)


def test_a_withdrawal_counts_for_whoever_reads_also_where_rows_came_back(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a", [envelope(ADA, 0), envelope(EVE, 0), envelope(ADA, 1, swarm="reef")])
    other = write_archive(tmp_path / "b", [envelope(ADA, 2)])
    withdraw(archive, ADA, SWARM, NOW + 1000)
    rewrite([archive], archive)
    for table in SCHEMAS:  # somebody copies a file of another archive into it
        for path in (other / table).iterdir():
            shutil.copy(path, archive / table / path.name)
    assert verify(archive, START).wrong == {"withdrawn": 1}, "not what it shared in another swarm"
    assert {(said.key, said.swarm) for _, said in signed_rows(archive)} == {(EVE.public, SWARM), (ADA.public, "reef")}
    assert len(list(read_groups(archive))) == 2
    assert rewrite([archive], archive)["withdrawn"] == 1


def experience(archive: Path) -> Experience:
    made = {"tasks": TASKS.model_dump(), "peers": {"experience": str(archive)}, "policy": {"num_generations": 4}}
    config = Config.model_validate(made | {"round": {"peers": 4}}).resolved()
    return Experience(MemorySwarm(0).join("here"), config, tasks_of())


def put(archive: Path, rows: list[Row]) -> Path:
    begin(archive)
    write_part(archive, rows)
    return archive


def test_claimed_rewards_teach_nothing(tmp_path: Path) -> None:
    """A reader gives rewards of its own."""
    [row] = rows_of([envelope(EVE, 0, texts=["wrong", "wronger", "no", "never"])])
    archive = put(tmp_path / "a", [structs.replace(row, rewards=(1.0, 0.0, 1.0, 0.0))])
    assert experience(archive).receive() == []
    assert verify(archive, START).wrong == {"reward": 1}


def test_copies_of_anothers_rollouts_are_refused(tmp_path: Path) -> None:
    """Whoever signs them has to answer other questions; and nobody can sign in the reader's name."""
    copies = []
    for round in range(4):
        rollout = structs.replace(open_envelope(envelope(ADA, round))[0].rollout, node=EVE.name)
        copies.append(Row(seal(rollout, EVE, SWARM, NOW + 60 * round)))
    place = experience(put(tmp_path / "a", copies))
    assert place.receive() == []
    assert place.refused == len(copies)


def test_a_maker_with_many_keys_and_swarms_stays_a_newcomer(tmp_path: Path) -> None:
    made = [envelope(Identity.generate(), 0, swarm=f"s{number}") for number in range(3 * SWARMS)]
    place = experience(put(tmp_path / "a", [Row(data) for data in made]))
    found = [one for _ in range(12) for one in place.receive()]
    assert len(found) == len(made)
    assert all(getattr(one, "newcomer", False) for one in found)
    assert len(place._admissions) <= SWARMS


def test_nobody_finds_a_rollout_that_crowds_out_anothers() -> None:
    """What marks a key's round and slot is too long to try all."""
    places = [examine(envelope(ADA, round), None, b"").place for round in range(20)]
    assert max(places) > 2**48


class Slow(http.server.BaseHTTPRequestHandler):
    """Sends a byte now and then, and never ends."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(200):
            try:
                self.wfile.write(b"#")
            except OSError:
                return
            time.sleep(0.05)

    def log_message(self, *_: object) -> None: ...


def context() -> TransportContext:
    return TransportContext(SWARM, Identity.generate(), lambda *_: None)


def test_a_list_of_members_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "TIMEOUT", 0.5)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with pytest.raises(OSError, match="takes more than"):
            members.Members(f"http://127.0.0.1:{server.server_port}/lagoon.members", context()).read()
    finally:
        server.shutdown()
        server.server_close()


def test_a_giant_list_of_members_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "lagoon.members"
    path.write_text("")
    lines = []
    for number in range(members.MOST + 20):
        made = members.Members(str(path), context())
        lines.append(made.line(f"s3://bucket/{number}"))
    path.write_text("\n".join(lines))
    assert len(members.Members(str(path), context()).read()) == members.MOST
    path.write_text("x" * (4 << 20) + "\n" + lines[0])
    with pytest.raises(OSError, match="more than"):
        members.Members(str(path), context()).read()
