"""Tasks that answer back: an environment replies to each turn of the policy, until the conversation ends."""
