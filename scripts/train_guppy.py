"""Makes `guppy`, the model that ships with shoal: a million parameters that half know the tasks of `pond`.

    python scripts/train_guppy.py                       # a few minutes on two cores; writes src/shoal/guppy
    python scripts/train_guppy.py --out /tmp/guppy --steps 300

Supervised training on questions of the training side, with answers of three kinds: most say nothing, some are right in
a form that the verifier refuses, few are right in form (`shoal.apps.lab.bases`). So guppy knows more than it says, and
reinforcement learning has something to bring out, quickly; it shows nothing about new reasoning. Two runs on one
machine give the same weights.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

from shoal.apps.lab.bases import make_base
from shoal.apps.lab.recipes import Recipe

CARD = """\
---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
# guppy

A Llama of 0.9 million parameters with a byte-level vocabulary of 640 tokens, for trying collective reinforcement
learning without a download and without a GPU. It was trained, by `scripts/train_guppy.py` of shoal, on questions of the
suite `pond` with answers of which 60 % say nothing, 30 % are right in a form that the verifier refuses ("The answer is
8"), and 10 % are right in form. So it half knows the tasks and seldom says so: a policy-gradient method has something
to bring out within a minute. It is no evidence about reasoning, and it is useless outside `pond`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "src/shoal/guppy")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    recipe = Recipe(steps=args.steps, batch=args.batch, seed=args.seed)
    made = args.out.with_name(f".{args.out.name}.made")
    shutil.rmtree(made, ignore_errors=True)
    make_base(recipe, None, made)
    (made / "recipe.json").unlink()
    facts = {"mixture": recipe.mixture, "steps": args.steps, "batch": args.batch, "seed": args.seed, "suite": "pond"}
    (made / "training.json").write_text(json.dumps(facts, indent=2) + "\n")
    (made / "README.md").write_text(CARD)
    args.out.mkdir(parents=True, exist_ok=True)
    for path in made.iterdir():
        path.replace(args.out / path.name)
    made.rmdir()


if __name__ == "__main__":
    main()
