"""How bytes travel between nodes. Signing and admission stand above: no transport can weaken them."""
