"""The package with a kind of reward of docs/guides/rewards.md, as it stands there: installed, and named by a file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fakes import Exact, question
from installed import installed

from shoal.config.load import make_config
from shoal.errors import UserError
from shoal.rewards import rewards_of

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "rewards.md"


def test_a_kind_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = PAGE.read_text("utf-8").partition("## One of your own")[2]
    [code] = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    [(group, name, value)] = re.findall(r'\[project.entry-points."(.*?)"\]\n(\w+) = "(.*?)"\n', part)
    (tmp_path / f"{value.partition(':')[0]}.py").write_text(code)
    installed(tmp_path, "shoal-brevity", group, {name: value, "broken": "no_such_module_here:Section"})
    monkeypatch.syspath_prepend(tmp_path)
    config = make_config({"rewards": [{"kind": name, "longest": 4}]}, "file")
    rewards = rewards_of(config, Exact(), placement=None)  # type: ignore[arg-type]
    assert rewards is not None
    assert rewards.score([(question(1), ["", "ab", "abcdefgh"])]) == [[1.0, 0.5, 0.0]]
    with pytest.raises(UserError, match=f"no setting 'rewards.0.longer' for a reward of kind '{name}'; did you mean"):
        make_config({"rewards": [{"kind": name, "longer": 4}]}, "file")
    with pytest.raises(UserError, match="kind of reward 'broken' cannot be imported: ModuleNotFoundError"):
        make_config({"rewards": [{"kind": "broken"}]}, "file")
    with pytest.raises(UserError, match=f"did you mean '{name}'"):
        make_config({"rewards": [{"kind": f"{name}x"}]}, "file")
