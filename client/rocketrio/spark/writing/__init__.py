"""Writes rows as messages: from columns to requests, each acknowledged before a task ends."""
