"""What has not paid in a study of ours so far."""
