"""Exports a model as one GGUF file, for llama.cpp and Ollama."""
