"""A journal of calls for each sender process: a mapped file that outlives it (decision 66).

Only explicit marks count: *waits* proves that a message was not called, an answer proves that answer. A message that is
not in a journal proves nothing.
"""

from campaigns.engine.journal.file import CallJournal, NoMarks, find_trouble, open_journal
from campaigns.engine.journal.layout import MarkedAnswer

__all__ = ["CallJournal", "MarkedAnswer", "NoMarks", "find_trouble", "open_journal"]
