"""What is checked before a stranger's rollout counts."""
