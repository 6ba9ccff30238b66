"""Many stored records at once, as Arrow columns."""
