"""What adapters that draw letters with this machine's fonts say about signs that these fonts lack."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class DrawsSigns(ABC):
    """An adapter that draws letters with the fonts of this machine."""

    @classmethod
    @abstractmethod
    def missing_glyphs(cls, text: str) -> str:
        """Return the signs of a text that no font has, with their numbers, or ""."""

    @classmethod
    @abstractmethod
    def scripts(cls) -> tuple[list[str], list[str]]:
        """Return the scripts that the fonts have, and those that they lack; both empty: unknown."""

    @classmethod
    @abstractmethod
    def draws_address(cls, settings: Mapping[str, Any]) -> bool:
        """Return whether it also draws the address. Raises ValueError."""
