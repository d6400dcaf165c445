"""A terminal for a command to write to."""

import io
import re


class Terminal(io.StringIO):
    """So many columns wide as the environment's COLUMNS says."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """What is seen, without its colours."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.getvalue()).splitlines()
