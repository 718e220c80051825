"""The program `shoal`: its commands, and what they show."""
