"""What the attacks share is what the tests of a swarm of strangers share."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
