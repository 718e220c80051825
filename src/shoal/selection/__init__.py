"""Which rollouts a node sends, keeps and learns from."""
