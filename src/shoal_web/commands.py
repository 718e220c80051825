"""The commands of this package (`shoal.cli.command`)."""

from shoal.cli.command import Command

WATCH = Command("shoal_web.watch.command", "show runs in the browser, live", "web")
HUMAN = Command("shoal_web.human.command", "answer as a person, or let a program do so", "web")
