"""The commands of this package (`shoal.cli.command`)."""

from shoal.cli.command import Command

VALIDATE = Command("shoal_extras.validation.command", "check that right answers are right, before you train")
EXPORT = Command("shoal_extras.export.command", "take a model away: a folder, GGUF or the Hub, with a card")
DOCTOR = Command("shoal_extras.doctor.command", "show what this machine can do, and what a run would take")
PROBE = Command("shoal_extras.probe.command", "find out how to ask a model, before you train it")
RESCORE = Command("shoal_extras.rescore", "compute the rewards of what a run recorded again")
EVAL = Command("shoal_extras.evaluation", "measure a model on held-out questions")
ARCHIVE = Command("shoal_extras.archive.command", "keep what a swarm shares, for anybody to learn from")
VERIFY = Command("shoal_extras.archive.verify", "verify an archive: signatures, questions, rewards, copies")
