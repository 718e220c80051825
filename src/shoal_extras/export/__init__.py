"""Taking a model away: folders, GGUF files and the Hugging Face Hub, with a card made from the run."""
