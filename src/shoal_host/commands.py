"""The commands of this package (`shoal.cli.command`)."""

from shoal.cli.command import Command

HOST = Command("shoal_host.host.command", "host a swarm: relay, judge, window and an invitation in one command", "host")
RELAY = Command("shoal_host.relay.command", "carry a swarm between machines", "host")
JUDGE = Command("shoal_host.judge.command", "ask nodes held-out questions and keep the scores", "host")
ID = Command("shoal_host.identity", "show, export or import this machine's identity")
