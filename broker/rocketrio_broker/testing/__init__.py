"""Replacements of the network for tests; of the broker only `embedded` imports them."""
