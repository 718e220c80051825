"""What one adversary within its rights gets of four honest peers' places in the gradient, and what it costs them.

    python benchmarks/gradient.py [ROUNDS] [SHAPE ...]

For each shape of its groups: its share of the foreign gradient (mean over rounds, and of sums), tokens and milliseconds
of a round, and the places of all pools that it holds at the end. `none` is an honest node in its place.
A hundred rounds of one shape take about two minutes on two quiet cores.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean, median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "core" / "redteam"))
from test_gradient_share import SHAPES, play

rounds, *shapes = sys.argv[1:] or ["100"]
for name in shapes or ["none", *SHAPES]:
    found = play(None if name == "none" else name, int(rounds))
    print(
        f"{name}: share {fmean(found.shares):.3f} (of sums {found.adversary / found.foreign:.3f}), tokens "
        f"{median(found.tokens):.0f}, ms {1000 * median(found.seconds):.0f}, pool {found.held} of {found.places}",
        flush=True,
    )
