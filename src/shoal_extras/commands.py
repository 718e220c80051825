"""The commands of this package (`shoal.cli.command`)."""

from shoal.cli.command import Command

DOCTOR = Command("shoal_extras.doctor.command", "show what this machine can do, and what a run would take")
VALIDATE = Command("shoal_extras.validate.command", "check that right answers are right, before you train")
PROBE = Command("shoal_extras.probe.command", "find out how to ask a model, before you train it")
