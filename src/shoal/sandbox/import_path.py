"""Child processes can import what this one can.

subprocess.Popen(command, env={**os.environ, "PYTHONPATH": import_path()})
"""

from __future__ import annotations

import os
import sys


def import_path() -> str:
    """`sys.path` for the variable PYTHONPATH, with absolute folders."""
    return os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
