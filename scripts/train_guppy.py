"""Makes `guppy`, the model that ships with shoal: a million parameters that half know the tasks of `pond`.

    python scripts/train_guppy.py                       # half an hour on two cores; writes src/shoal/guppy
    python scripts/train_guppy.py --out /tmp/guppy --steps 300

Supervised training on questions of the training side, in two parts (`shoal_lab.bases`). First all answers are
right, three of four in a form that the verifier refuses: it learns the tasks. Then most say nothing, some are right in
the refused form, few are right in form: it learns to say seldom what it knows. So reinforcement learning has something
to bring out, quickly; it shows nothing about new reasoning. Two runs on one machine give the same weights.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

from shoal_lab.bases import make_base
from shoal_lab.recipes import Recipe

CARD = """\
---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
# guppy

A Llama of 0.9 million parameters with a byte-level vocabulary of 640 tokens, for trying collective reinforcement
learning without a download and without a GPU. It was trained, by `scripts/train_guppy.py` of shoal, on questions of the
suite `pond`: first with right answers, then with answers of which 60 % say nothing, 30 % are right in a form that the
verifier refuses ("The answer is 8"), and 10 % are right in form. So it knows much of the tasks and seldom says so: a
policy-gradient method has something to bring out within a minute. It is no evidence about reasoning, and it is useless
outside `pond`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "src/shoal/guppy")
    parser.add_argument("--steps", type=int, default=4000, help="of the first part; the second has a twentieth of them")
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    knows = Recipe(right=0.25, refused=0.75, steps=args.steps, batch=args.batch, seed=args.seed)
    says = Recipe(right=0.1, refused=0.3, steps=args.steps // 20, batch=args.batch, seed=args.seed + 1)
    made = args.out.with_name(f".{args.out.name}.made")
    shutil.rmtree(made, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        make_base(knows, None, Path(folder) / "knows")
        make_base(says, f"{folder}/knows", made)
    (made / "recipe.json").unlink()
    parts = []
    for part in (knows, says):
        mixture = {"useless": 1 - part.right - part.refused, "refused": part.refused, "right": part.right}
        parts.append({"mixture": mixture, "steps": part.steps, "seed": part.seed})
    facts = {"suite": "pond", "batch": args.batch, "parts": parts}
    (made / "training.json").write_text(json.dumps(facts, indent=2) + "\n")
    (made / "README.md").write_text(CARD)
    args.out.mkdir(parents=True, exist_ok=True)
    for path in made.iterdir():
        path.replace(args.out / path.name)
    made.rmdir()


if __name__ == "__main__":
    main()
