"""`python -m shoal`, where the program `shoal` is not on the path."""

import sys

from shoal.cli.main import main

sys.exit(main())
