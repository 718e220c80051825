"""`python -m shoal.judge`: the same as `shoal judge`."""

import sys

from shoal.errors import UserError
from shoal.flags import Parser
from shoal.judge.command import HELP, add_arguments, command

if __name__ == "__main__":
    parser = Parser(prog="shoal judge", description=HELP)
    add_arguments(parser)
    try:
        sys.exit(command(parser.parse(sys.argv[1:])))
    except UserError as error:
        print(f"shoal: {error}", file=sys.stderr)
        sys.exit(2)
