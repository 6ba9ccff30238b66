"""Hypothesis without a deadline: a busy machine is no failure of the code."""

from hypothesis import settings

settings.register_profile("rocketrio", deadline=None)
settings.load_profile("rocketrio")
