"""Several processes that compute as one node, and nodes spread over worker processes."""
