"""Made-up nodes in numbers that take Zenoh minutes to declare.

tests/host/redteam/test_presence.py does it with thousands.

    python benchmarks/presence.py [--kind tokens] [--number 65000]

Raises `AssertionError` if an established node loses one of eight honest neighbours, or if a new one does not hear at
least four of them within a minute. Prints the processor time of the ten nodes, once all has been declared.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", default="tokens", help="tokens, offer tokens, publishers, silent queryables, ...")
    parser.add_argument("--number", type=int, default=65_000)
    args = parser.parse_args()
    sys.path[:0] = [str(TESTS), str(TESTS / "redteam")]
    from test_presence import test_made_up_nodes_displace_nobody_and_hide_nobody as withstands

    start = time.monotonic()
    withstands(args.kind, args.number)
    print(f"all of it took {time.monotonic() - start:.0f} s, most of it to declare them")


if __name__ == "__main__":
    main()
