"""Inspects and changes a cluster: the parts of what `open_admin` returns."""
