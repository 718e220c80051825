"""Who a node is: keys, readable names, and the secrets of private swarms."""
