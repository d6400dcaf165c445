"""Confirmation at a terminal for commands that change where a vendor's calls go or which account they use."""

import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError, OutputWrapper

from vendors import configuration, destinations
from vendors.models import Credential, Vendor
from vendors.said import count_of


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--same-account",
        action="store_true",
        help="calls reach the account of before: messages in doubt are still settled by asking the vendor",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask about messages in doubt")


def agree_on_vendor(err: OutputWrapper, row: Vendor, options: Mapping[str, Any]) -> None:
    """Say how many messages in doubt the unsaved change leaves to a person, and ask at a terminal.

    Raises CommandError if the answer is no.
    """
    if not options["same_account"] and configuration.moved_fields(row):
        _demand_agreement(err, row, destinations.count_doubts(row), options)


def agree_on_secret(err: OutputWrapper, row: Credential, options: Mapping[str, Any]) -> None:
    """Say how many doubts a new secret leaves to a person, as it may belong to another account; ask as above."""
    if not options["same_account"]:
        _demand_agreement(err, row, destinations.count_doubts(row.vendor, row), options)


def _demand_agreement(err: OutputWrapper, row: Vendor | Credential, doubts: int, options: Mapping[str, Any]) -> None:
    if not doubts:
        return
    messages = count_of(doubts, "message is", "messages are")
    err.write(
        f"{row}: {messages} in doubt. Calls may reach another account after this change, so that asking there proves "
        "nothing: only a person can settle them (manage.py resolve). If it is the same account, say --same-account."
    )
    if options["yes"] or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    err.write("Go on? [y/N]", ending=" ")
    err.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise CommandError("nothing was changed", returncode=2)
