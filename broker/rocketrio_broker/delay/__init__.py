"""Messages that wait for their time under a system topic."""
