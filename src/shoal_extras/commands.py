"""The command of this package (`shoal.cli.command`)."""

from shoal.cli.command import Command

PROBE = Command("shoal_extras.probe.command", "find out how to ask a model, before you train it")
