"""Formats of dates and times, where Django's own ones for a language do not suit."""
