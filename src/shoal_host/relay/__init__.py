"""The relay, and all that reads Zenoh's own protocol."""
