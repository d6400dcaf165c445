"""The adapter `print_file`: letters are printed to PDF, and a batch of them is brought to the vendor as two files.

The vendor says by an acknowledgement file what it takes. Until then a letter that was brought is in doubt, and never
brought again: docs/decisions/0027-a-print-file-is-accepted-by-its-acknowledgement.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from django.conf import settings as installation

from vendors.adapters import addresses
from vendors.adapters import base as options
from vendors.adapters.addresses import AddressRules, PrintsAddresses
from vendors.adapters.base import WIND_UP, Adapter, Capabilities, InvalidSettings, Letter, Option
from vendors.adapters.reports import FetchedReports, FetchesReports
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused
from vendors.printing import acknowledgements, batches, pages, places, sheets
from vendors.printing.batches import Sheet
from vendors.printing.pages import Look, NotPrintable, PageMaker, Stopped
from vendors.printing.places import Opens, Place, PlaceError, SftpServer
from vendors.printing.uploading import Upload, not_sent

MOST_BYTES = 48 << 20  # of the PDFs of a batch, which are in memory
MOST_MANIFEST = 5 << 20  # bytes of one that is looked into
UNSENDABLE = "unsendable"
NEXT_BATCH = 5.0  # seconds until a letter that did not fit is called again, at the least


def below(value: Any) -> str:
    """A folder, without `..`."""
    path = PurePosixPath(options.text(value))
    if ".." in path.parts:
        raise ValueError("must be a folder without ..")
    return str(path)


def host_keys(value: Any) -> tuple[str, ...]:
    """Public keys of a server, separated by commas, such as `ssh-ed25519 AAAA...`."""
    parts = value.split(",") if isinstance(value, str) else value
    found = tuple(" ".join(str(one).split()[:2]) for one in parts if str(one).strip())
    if not found or not all(one.partition(" ")[2] for one in found):
        raise ValueError("must be the server's public key, such as 'ssh-ed25519 AAAA...': ask the vendor for it")
    return found


def ending(value: Any) -> str:
    """The end of a name."""
    word = options.text(value)
    if not word.startswith(".") or "/" in word or word.lower() in (".csv", ".pdf"):
        raise ValueError("must begin with a dot, such as .part, and be neither .csv nor .pdf")
    return word


class PrintFile(FetchesReports, PrintsAddresses, Adapter):
    """`host`: of the SFTP server; without it folders are below the setting PRINT_FOLDER of this machine. The secret
    holds `password` or `private_key` (OpenSSH's, without a passphrase), for SFTP.

    `accepted`: acknowledged: a letter is accepted when a file in `acknowledgements` says so; uploaded: the vendor's
    contract takes whatever is in the folder. `manifests_stay`: its contract leaves manifests there for three days, so
    that one that is not there never was.
    """

    options = {
        "host": Option(options.text, "", destination=True),
        "port": Option(options.whole(1, 65535), 22, destination=True),
        "user": Option(options.text, "", destination=True),
        "host_key": Option(host_keys, (), destination=True),
        "folder": Option(below, required=True, destination=True),
        "temporary": Option(ending, ".part"),
        "accepted": Option(options.choice("acknowledged", "uploaded"), "acknowledged"),
        "acknowledgements": Option(below, ""),
        "acknowledged_within": Option(options.seconds, 172_800.0),
        "manifests_stay": Option(options.flag, False),
        "batch": Option(options.whole(1, 2000), 500),
        "paper": Option(options.choice("A4", "Letter", a4="A4", letter="Letter"), "A4"),
        "address": Option(addresses.lines, ()),
        "address_required": Option(addresses.names, ()),
        "address_lines": Option(options.whole(1, batches.ADDRESS_LINES), batches.ADDRESS_LINES),
        "address_width": Option(options.whole(10, 200), 40),
        "address_alphabet": Option(options.choice(*addresses.ALPHABETS), "any"),
        "country": Option(options.text, ""),
        "countries": Option(addresses.names, ()),
        "window": Option(options.choice(*sheets.WINDOWS, "none"), "none"),
        "duplex": Option(options.flag, False),
        "colour": Option(options.flag, False),
        "pages_max": Option(options.whole(1, 200), 20),
        "concurrency": Option(options.whole(1, 8), 1),
        "making": Option(options.seconds, 300.0),
        "uploading": Option(options.seconds, 300.0),
        "timeout": Option(options.seconds, 30.0),
    }

    @classmethod
    def validate(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        known = super().validate(settings)
        errors = []
        if known["host"] and not (known["user"] and known["host_key"]):
            errors.append("host needs user and host_key: without the server's key anybody could take the letters")
        if known["accepted"] == "acknowledged" and not known["acknowledgements"]:
            errors.append("acknowledgements is missing: the folder with the vendor's files, or set accepted=uploaded")
        if not known["host"] and known["folder"].startswith("/"):
            errors.append("folder is below the setting PRINT_FOLDER, so it must not begin with /")
        if bool(known["country"]) != bool(known["countries"]):
            errors.append("country names a column, and countries what may stand there: they go together")
        if not known["address"] and (known["address_required"] or known["country"]):
            errors.append("address is missing: the lines of an address, such as 'name; street; postcode city'")
        if absent := pages.missing(*(["asyncssh"] if known["host"] else [])):
            errors.append(absent)
        if errors:
            raise InvalidSettings(errors)
        return known

    @classmethod
    def carries(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"attachments"})  # images within the HTML

    @classmethod
    def fetches_reports(cls, settings: Mapping[str, Any]) -> bool:
        return bool(settings.get("acknowledgements"))

    @classmethod
    def address_rules(cls, settings: Mapping[str, Any]) -> AddressRules | None:
        known = cls.validate(settings)
        window = sheets.WINDOWS.get(known["window"])
        if not known["address"] and window is None:
            return None
        seen = sheets.lines_seen(window) if window else known["address_lines"]
        return AddressRules(
            known["address"],
            frozenset(known["address_required"]),
            min(seen, known["address_lines"]),
            known["address_width"],
            known["address_alphabet"],
            known["country"],
            frozenset(one.upper() for one in known["countries"]),
        )

    def __init__(self, settings: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        self._known = known = self.validate(settings)
        self._opens = self._place(known, secret)
        self._rules = self.address_rules(known)
        self._look = Look(known["paper"], known["window"], known["pages_max"])
        self.concurrency = known["concurrency"]
        self.deadline = known["making"] + known["uploading"] + 2 * known["timeout"] + WIND_UP
        self._acknowledged = known["accepted"] == "acknowledged"
        self.capabilities = Capabilities(
            lookup="strong" if known["manifests_stay"] else "none", batch_max=known["batch"]
        )
        self._makers: list[PageMaker] = []
        self._seen: dict[str, set[str]] = {}
        self._closed = False

    @staticmethod
    def _place(known: Mapping[str, Any], secret: Mapping[str, str]) -> Opens:
        """Raises InvalidSettings, which never shows a secret."""
        if not known["host"]:
            if secret:
                raise InvalidSettings(["a folder needs no secret"])
            return partial(places.folder, Path(installation.PRINT_FOLDER))
        if set(secret) not in ({"password"}, {"private_key"}):
            raise InvalidSettings(["the secret must hold password or private_key"])
        try:
            places.check_keys(known["host_key"], secret.get("private_key"))
        except ValueError as error:
            raise InvalidSettings([str(error)]) from None
        login = known["host"], known["port"], known["user"], tuple(known["host_key"]), dict(secret)
        return partial(places.sftp, SftpServer(*login, known["timeout"]))

    async def open(self) -> None:
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(maker.close() for maker in self._makers))
        self._makers.clear()

    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        made = await self._made(letters)
        ready = [one for one in made if isinstance(one, Sheet)]
        if not ready:
            return [one for one in made if not isinstance(one, Sheet)]
        name = batches.name(one.reference for one in ready)
        came = await self._brought(name, ready)
        outcomes: list[Outcome] = []
        for one in made:
            if not isinstance(one, Sheet):
                outcomes.append(one)
            elif came is not None:
                outcomes.append(came)
            elif self._acknowledged:
                reason = f"in the batch {name}, which the vendor has not acknowledged"
                outcomes.append(InDoubt(reason, wait=self._known["acknowledged_within"]))
            else:
                outcomes.append(Accepted(f"{name}/{one.reference}"))
        return outcomes

    async def _made(self, letters: Sequence[Letter]) -> list[Sheet | Refused | NotSent]:
        """Letters as PDF, as many as can be made in time; the others wait for another batch."""
        maker = PageMaker()
        self._makers.append(maker)
        made: list[Sheet | Refused | NotSent] = []
        until, left = time.monotonic() + self._known["making"], MOST_BYTES
        try:
            for letter in letters:
                if self._closed:
                    made.append(NotSent("the adapter is closed"))
                elif left <= 0 or time.monotonic() >= until:
                    made.append(NotSent("there is no room in this batch", retry_after=NEXT_BATCH))
                else:
                    made.append(await self._one(maker, letter, until))
                    left -= len(made[-1].pdf) if isinstance(made[-1], Sheet) else 0
        finally:
            await maker.close()
            if maker in self._makers:
                self._makers.remove(maker)
        return made

    async def _one(self, maker: PageMaker, letter: Letter, until: float) -> Sheet | Refused | NotSent:
        rules = self._rules
        for fault in rules.faults(letter.recipient, letter.params) if rules else ():
            return Refused(UNSENDABLE, fault[:255])
        address = rules.of(letter.recipient, letter.params) if rules else addresses.lines_of(letter.recipient)
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                printed = await maker.letter(self._look.question(letter, address), letter.attachments)
        except NotPrintable as why:
            return Refused(UNSENDABLE, str(why)[:255])
        except Stopped as error:
            return _stopped(error)
        except TimeoutError:
            return NotSent("its pages were not made in time", retry_after=NEXT_BATCH)
        return Sheet(letter.reference, letter.recipient, printed.pages, address, printed.pdf)

    async def _brought(self, name: str, ready: Sequence[Sheet]) -> NotSent | InDoubt | None:
        """None: the vendor has the batch."""
        if self._closed:
            return NotSent("the adapter is closed")
        maker = PageMaker()
        try:
            pdf = await maker.merge([one.pdf for one in ready], fronts=self._known["duplex"])
        except Stopped as error:
            return _stopped(error)
        finally:
            await maker.close()
        rows = batches.manifest(name, ready, duplex=self._known["duplex"], colour=self._known["colour"])
        upload = Upload(self._opens, self._known["folder"], self._known["temporary"], name)
        return await upload.bring(pdf, rows, self._known["uploading"])

    async def look_up(self, reference: str) -> Accepted | NotSent | None:
        """Whether a manifest at the vendor has it."""
        folder = self._known["folder"]
        try:
            async with self._opens() as place:
                for one in await place.files(folder):
                    ours = one.name.startswith(batches.PREFIX) and one.name.endswith(".csv")
                    if ours and reference in await self._references(place, one.name):
                        return self._found(one.name.removesuffix(".csv"), reference)
        except PlaceError as error:
            return not_sent(error)
        return None

    def _found(self, name: str, reference: str) -> Accepted | NotSent:
        if not self._acknowledged:
            return Accepted(f"{name}/{reference}")
        return NotSent(f"it is in the batch {name}, which the vendor has not acknowledged", retry_after=3600.0)

    async def _references(self, place: Place, name: str) -> set[str]:
        """Of a manifest, which never changes. Raises PlaceError for one that cannot be read: it may have any letter."""
        if name not in self._seen:
            content = await place.read(f"{self._known['folder']}/{name}", MOST_MANIFEST)
            try:
                self._seen[name] = batches.references(content)
            except ValueError as error:
                raise PlaceError(f"the manifest {name}: {error}") from None
        return self._seen[name]

    async def fetch_reports(self) -> AsyncIterator[FetchedReports]:
        try:
            async with self._opens() as place:
                async for one in acknowledgements.fetched(place, self._known["acknowledgements"]):
                    yield one
        except PlaceError as error:
            raise OSError(error.reason) from None


def _stopped(error: Stopped) -> NotSent:
    if error.for_good:
        return NotSent(str(error), scope="credential", pause=True)
    return NotSent(str(error), retry_after=NEXT_BATCH)
