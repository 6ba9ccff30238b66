"""What holds for every request: how a handler declares it, refuses it, has it audited and cuts long work."""
