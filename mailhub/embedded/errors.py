"""What goes wrong with the embedded servers, in one sentence for the person at the keyboard."""


class EmbeddedError(Exception):
    """A server cannot be found, started or stopped. The message says what to do."""
