"""Opens a release of archives as programs do that know nothing of shoal: pandas, DuckDB, datasets, TRL.

    python scripts/open_archive.py release

It prints how many answers each finds, and the loss of two steps of supervised training on right answers.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any


def main(folder: Path) -> None:
    import datasets
    import duckdb
    import pandas as pd

    archives = sorted(path.parent for path in folder.glob("*/completions"))
    frames = {archive.name: pd.read_parquet(archive / "completions") for archive in archives}
    print("pandas  ", {name: len(frame) for name, frame in frames.items()})
    asked = f"SELECT count(*), avg((reward >= 1)::INT) FROM '{folder}/*/completions/*.parquet'"
    print("duckdb  ", duckdb.sql(asked).fetchall())
    with tempfile.TemporaryDirectory() as cache:
        found: dict[str, Any] = {}
        for archive in archives:
            for table in ("completions", "groups"):
                name = f"{archive.name}-{table}"
                found[name] = datasets.load_dataset(str(folder), name, split="train", cache_dir=cache)
        print("datasets", {name: len(rows) for name, rows in found.items()})
        train(found[f"{archives[0].name}-completions"], Path(cache))
    assert not [name for name in sys.modules if name.startswith("shoal")]


def train(rows: Any, scratch: Path) -> None:
    """Two steps of TRL's SFTTrainer, with a model that is made here."""
    import transformers
    import trl
    from tokenizers import Tokenizer, models, pre_tokenizers

    right = rows.filter(lambda row: row["reward"] >= 1).select(range(64)).select_columns(["prompt", "completion"])
    words = sorted({character for row in right for character in row["prompt"] + row["completion"]})
    vocabulary = {word: number for number, word in enumerate(["<pad>", "</s>", *words])}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    plain.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="</s>")
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "vocab_size": len(vocabulary)}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    usual: dict[str, Any] = {"use_cpu": True, "bf16": False, "report_to": [], "save_strategy": "no", "logging_steps": 1}
    settings = trl.SFTConfig(str(scratch), max_steps=2, disable_tqdm=True, **usual)
    trainer = trl.SFTTrainer(model, settings, train_dataset=right, processing_class=tokenizer)
    trainer.train()
    print("trl     ", [log["loss"] for log in trainer.state.log_history if "loss" in log])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
