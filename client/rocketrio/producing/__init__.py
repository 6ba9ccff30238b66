"""Sending messages: everything behind `open_producer`, from single messages to pipelines, transactions and requests."""
