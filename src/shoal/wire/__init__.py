"""The signed messages that nodes exchange, and their bytes."""
