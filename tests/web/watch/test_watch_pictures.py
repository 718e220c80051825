"""The window draws pictures again from identities; nothing that a run's folder says becomes a picture."""

from __future__ import annotations

import base64
import io
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("duckdb")

from shoal.evaluation.pass_at_k import Asked, Evaluation
from shoal.node import RoundResult
from shoal.protocols import UpdateResult
from shoal.rollout import Completion, Rollout, Scored
from shoal.runs.metrics import rollout_rows
from shoal.runs.tables import ROLLOUTS, SCHEMA, TRANSCRIPT_SCHEMA, TRANSCRIPTS, Table
from shoal.runs.transcripts import transcript_rows
from shoal_extras.pictures.questions import NameColour
from shoal_web.watch.folder import FolderSource
from shoal_web.watch.pictures import identified, shown_again
from shoal_web.watch.source import RowQuery, StoryQuery


def test_a_rollout_and_a_story_show_the_picture(tmp_path: Path) -> None:
    task = NameColour()
    questions = [task.question(seed=2**62 + 1, index=index) for index in (0, 1)]
    answer = (Completion.of("red"),)
    local = [Scored(Rollout(q.id, q.hash, answer, "node-1", 1), q, (1.0,)) for q in questions]
    rows = rollout_rows(RoundResult(local, [], UpdateResult()), task.answer)
    assert all(row["prompt"].startswith("[picture ") for row in rows)
    asked = [Asked(question, answer, (1.0,)) for question in questions]
    kept = [("name_colour", 0), ("name_colour", 1)]
    told = transcript_rows(
        "node-1", Evaluation(1, {"name_colour": [1, 1]}, asked={"name_colour": asked}), kept, task.answer
    )
    for name, schema, added in ((ROLLOUTS, SCHEMA, rows), (TRANSCRIPTS, TRANSCRIPT_SCHEMA, told)):
        table = Table(tmp_path / name, schema)
        table.add(1, added)
        table.write()
    with closing(FolderSource(tmp_path, "run")) as source:
        [shown] = source.rollout(RowQuery(part=1, row=1))["pictures"]
        story = source.story(StoryQuery(node="node-1"))
    image = Image.open(io.BytesIO(base64.b64decode(shown.removeprefix("data:image/png;base64,"))))
    picture = questions[1].pictures[0]
    assert image.resize((32, 32), Image.Resampling.NEAREST).tobytes() == picture.rgb
    assert len(story["questions"]) == 2  # the texts are alike, the pictures are not
    assert all(len(each["pictures"]) == 1 for each in story["questions"])


@pytest.mark.parametrize(
    "identity",
    [
        ("chain_sum", "1", 1, 0),
        ("name_colour", "2", 1, 0),
        ("name_colour", "1", -1, 0),
        ("name_colour", "1", 2**63, 0),
        ("name_colour", "1", 1, 10**6),
        ("name_colour", "1", "1", 0),
        ("name_colour", None, 1, 0),
        ("os:system", "1", 1, 0),
    ],
)
def test_other_identities_show_nothing(identity: tuple[object, ...]) -> None:
    assert shown_again(*identity) == []


@pytest.mark.parametrize("identity", [None, "", "1 1", "1 -1 0", "1 99999999999999999999 0", "<img> 1 0", "1 1 0 0"])
def test_other_texts_in_the_column_show_nothing(identity: str | None) -> None:
    assert identified("name_colour", identity) == []
