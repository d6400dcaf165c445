"""What all tests share."""

from tests.sandbox import sandbox

__all__ = ["sandbox"]
