"""Study files: what is a run of what, and what is refused."""

from __future__ import annotations

import importlib
import runpy
from pathlib import Path

import pytest

from shoal.config.policy import RATES
from shoal.errors import UserError
from shoal_lab.study import ContrastSpec, Study, read_study

STUDY = {
    "title": "A trial",
    "seeds": [1, 2],
    "base": {"rounds": 5, "round": {"nodes": 3}},
    "bases": {"sparse": {"start": "guppy", "steps": 1}},
    "regimes": {"alike": {"policy": {"model": ["guppy"]}}, "sparse": {"policy": {"model": ["base:sparse"]}}},
    "arms": {
        "8/0": {"about": "alone", "round": {"local": 8, "peers": 0}},
        "4/4": {"round": {"local": 4, "peers": 4}},
    },
    "contrasts": {"sharing": {"treated": "4/4", "control": "8/0", "expect": "above", "regimes": ["alike"]}},
    "quick": {"seeds": 1, "settings": {"rounds": 2}},
}


def changed(**changes: object) -> dict[str, object]:
    return {**STUDY, **changes}


def test_a_cell_is_a_regime_an_arm_and_a_seed() -> None:
    cells = list(Study.model_validate(STUDY).cells())
    assert [(c.regime, c.arm, c.seed) for c in cells if c.seed == 1] == [
        ("alike", "8/0", 1),
        ("alike", "4/4", 1),
        ("sparse", "8/0", 1),
        ("sparse", "4/4", 1),
    ]
    assert len({cell.path for cell in cells}) == len(cells) == 8


def test_settings_of_base_regime_and_arm_make_a_run(tmp_path: Path) -> None:
    study = Study.model_validate(STUDY)
    cell = next(cell for cell in study.cells() if (cell.regime, cell.arm, cell.seed) == ("sparse", "8/0", 2))
    config = study.config(cell, tmp_path)
    assert (config.rounds, config.seed, config.round.nodes, config.round.local) == (5, 2, 3, 8)
    assert config.policy.model == [str(tmp_path / "bases" / "sparse")]
    assert config.round.questions_per_round == 8  # resolved: as it is, the run can be repeated from its config.toml


def test_bases_learn_at_guppys_rate_whether_or_not_they_are_made(tmp_path: Path) -> None:
    """Their names are folders, which `auto` takes for pretrained models where it cannot look into them."""
    study = Study.model_validate(STUDY)
    rates = {study.config(cell, place).learner.learning_rate for cell in study.cells() for place in (tmp_path, None)}
    assert rates == {RATES["guppy"]}


def test_without_regimes_there_is_one() -> None:
    study = Study.model_validate(changed(regimes={}, arms={"a": {}}, contrasts={}, quick={}))
    assert [cell.path for cell in study.cells()] == ["runs/main/a/seed-1", "runs/main/a/seed-2"]


def test_arms_that_differ_in_the_nodes_that_count_share_runs() -> None:
    mixed = {"round": {"nodes": 2, "local": 4}}
    arms = {"alone": {}, "first": mixed | {"count": ["node-1"]}, "second": mixed | {"about": "x", "count": ["node-2"]}}
    study = Study.model_validate(changed(arms=arms, regimes={}, contrasts={}, quick={}, seeds=[1]))
    assert [cell.path for cell in study.cells()] == [f"runs/main/{arm}/seed-1" for arm in ("alone", "first", "first")]
    assert [cell.arm for cell in study.runs()] == ["alone", "first"]


def test_quick_is_a_part_of_the_study() -> None:
    study = Study.model_validate(STUDY).smaller()
    assert {cell.seed for cell in study.cells()} == {1}
    assert study.config(next(study.cells())).rounds == 2


def test_a_contrast_is_made_where_it_says_or_everywhere() -> None:
    study = Study.model_validate(STUDY)
    assert study.paired(study.contrasts["sharing"]) == ["alike"]
    assert study.paired(ContrastSpec(treated="4/4", control="8/0")) == ["alike", "sparse"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"seeds": [1, 1]}, "a seed is listed twice"),
        ({"arms": {}}, "at least 1 item"),
        ({"arms": {"../x": {}}, "contrasts": {}}, "cannot be a name"),
        ({"arms": {"a b": {}, "a_b": {}}, "contrasts": {}}, "the same folder"),
        ({"contrasts": {"c": {"treated": "9/9", "control": "8/0"}}}, "'9/9', which is none of 8/0, 4/4"),
        ({"figure": "forgetting"}, "no figure 'forgetting'; did you mean 'held_out/forgetting'"),
        ({"arms": {"8/0": {"round": {"locl": 8}}}, "contrasts": {}}, "did you mean 'round.local'"),
        ({"arms": {"8/0": {"policy": {"model": ["base:none"]}}}, "contrasts": {}}, "no base 'none'"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, changes: dict[str, object], complaint: str) -> None:
    import tomli_w

    (tmp_path / "study.toml").write_text(tomli_w.dumps(changed(**changes)))
    with pytest.raises(UserError, match=complaint):
        read_study(tmp_path / "study.toml")


@pytest.mark.parametrize("path", sorted(Path("studies").glob("*.toml")), ids=lambda path: path.stem)
def test_the_studies_that_come_with_shoal_are_studies(path: Path) -> None:
    study = read_study(path)
    assert study.expect, "what is expected is written before the run"
    assert list(study.smaller().cells())
    for name in set(study.code):
        module, _, attribute = name.partition(":")
        found = runpy.run_path(module) if module.endswith(".py") else vars(importlib.import_module(module))
        assert callable(found[attribute.partition("(")[0]])
