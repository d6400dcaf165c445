"""The contract of an adapter as tests, for adapters of any package (docs/how-to/write-an-adapter.md).

A test file inherits `HttpContract` or `SmtpContract`. Product code must not import this package, as it needs pytest.
"""

import pytest

pytest.register_assert_rewrite(*(f"vendors.testing.{name}" for name in ("calls", "contract", "declared", "subject")))

from vendors.testing.cases import Trial  # noqa: E402
from vendors.testing.contract import HttpContract, SmtpContract  # noqa: E402
from vendors.testing.http_cases import VendorAnswer  # noqa: E402
from vendors.testing.http_server import HttpRequest, MisbehavingHttp  # noqa: E402
from vendors.testing.servers import MisbehavingServer  # noqa: E402
from vendors.testing.smtp_relay import MisbehavingSmtp  # noqa: E402

__all__ = [
    "HttpContract",
    "HttpRequest",
    "MisbehavingHttp",
    "MisbehavingServer",
    "MisbehavingSmtp",
    "SmtpContract",
    "Trial",
    "VendorAnswer",
]
