"""Stand-ins that benchmarks share with the tests: `LocalExaminer` examines in this process and without limits."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from local_examiner import LocalExaminer

__all__ = ["LocalExaminer"]
