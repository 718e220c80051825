"""What answers questions: language models and their decoding."""
