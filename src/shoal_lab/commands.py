"""The command of this package (`shoal.cli.command`)."""

from shoal.cli.command import Command

LAB = Command("shoal_lab.command", "run controlled experiments and report on them", "lab")
