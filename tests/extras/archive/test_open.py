"""An archive as programs open it that know nothing of shoal, and its exports as TRL's trainers take them."""

from __future__ import annotations

import copy
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from archives import envelope, write_archive
from tiny import make_model, make_tokenizer

from shoal.identity.keys import Identity
from shoal_extras.archive.contents import export

PROGRAMS = {
    "pandas": "import pandas as x; print(len(x.read_parquet('A/completions')), len(x.read_parquet('A/groups')))",
    "duckdb": "import duckdb as x\nfor t in ('completions', 'groups'):\n"
    "    print(x.sql(f\"SELECT count(*) FROM 'A/{t}/*.parquet'\").fetchall()[0][0], end=' ')",
    "datasets": "import datasets as x\nfor t in ('completions', 'groups'):\n"
    "    print(len(x.load_dataset('A', t, split='train', cache_dir='cache')), end=' ')",
}
PAGE = Path(__file__).parents[3] / "docs" / "guides" / "archive.md"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    makers = [Identity.generate(), Identity.generate()]
    made = [envelope(maker, round) for maker in makers for round in range(4)]
    return write_archive(tmp_path_factory.mktemp("archive") / "A", made)


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_opens_without_shoal(program: str, archive: Path) -> None:
    pytest.importorskip(program)
    code = f"{PROGRAMS[program]}\nimport sys; assert not [m for m in sys.modules if m.startswith('shoal')]"
    done = subprocess.run([sys.executable, "-c", code], cwd=archive.parent, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["32", "8"], done.stderr


def load(form: str, archive: Path, folder: Path) -> Any:
    export(archive, form, folder / form)
    import datasets

    return datasets.load_dataset(str(folder / form), split="train", cache_dir=str(folder / "cache"))


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    usual = {"output_dir": str(folder), "use_cpu": True, "bf16": False, "report_to": [], "disable_tqdm": True}
    return usual | {"save_strategy": "no", "max_steps": 2, "per_device_train_batch_size": 4} | more


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("trl") is None, reason="needs trl")
@pytest.mark.parametrize("form", ["sft", "preference", "grpo"])
def test_a_trainer_of_trl_takes_it_as_it_is(
    form: str, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    import trl

    dataset = load(form, archive, tmp_path)
    tokenizer = make_tokenizer(chat=True)
    model = make_model(vocab_size=len(tokenizer))
    trainer: Any
    if form == "sft":
        trainer = trl.SFTTrainer(
            model, trl.SFTConfig(**settings(tmp_path)), train_dataset=dataset, processing_class=tokenizer
        )
    elif form == "preference":
        args = trl.DPOConfig(**settings(tmp_path))
        reference = copy.deepcopy(model)
        trainer = trl.DPOTrainer(model, reference, args, train_dataset=dataset, processing_class=tokenizer)
    else:
        [code] = [code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "rollout" in code]
        names: dict[str, Any] = {"dataset": dataset}
        exec(code, names)  # as it stands in the guide
        args = trl.GRPOConfig(**settings(tmp_path, num_generations=4, per_device_train_batch_size=8, learning_rate=0.1))
        trainer = trl.GRPOTrainer(
            model,
            reward_funcs=names["kept_reward"],
            args=args,
            train_dataset=dataset,
            processing_class=tokenizer,
            rollout_func=names["rollout_func"],
        )
    before = {name: value.clone() for name, value in model.named_parameters()}
    trainer.train()
    assert any(not value.equal(before[name]) for name, value in model.named_parameters())
    if form == "grpo":
        # half of a group is right, and a wrong answer may have a twelfth
        found = [log["reward"] for log in trainer.state.log_history if "reward" in log]
        assert found
        assert all(0.5 <= reward < 0.55 for reward in found)
