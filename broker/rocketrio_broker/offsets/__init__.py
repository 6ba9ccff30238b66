"""The progress of consumer groups: the table of committed offsets, its versions, its file and journal."""
