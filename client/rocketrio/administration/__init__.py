"""Looking at a cluster and changing it: what `open_admin` gives."""
