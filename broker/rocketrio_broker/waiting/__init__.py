"""What waits in a broker: pulls for a message, answers for a safe message, tasks for a number to grow."""
