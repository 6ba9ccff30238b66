"""What a broker keeps beside its log: topics, groups and other settings by name, and the files that hold them."""
