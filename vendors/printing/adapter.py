"""The adapter `print_file`: renders letters to PDF and uploads each batch to the vendor as two files.

The vendor accepts letters by an acknowledgement file. Until then an uploaded letter is in doubt, and it is never
uploaded again (docs/decisions/0027-a-print-file-is-accepted-by-its-acknowledgement.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings as installation

from vendors.adapters import addresses
from vendors.adapters.addresses import AddressRules, PrintsAddresses
from vendors.adapters.base import WIND_UP, Adapter, Capabilities, Letter, one_unit
from vendors.adapters.glyphs import DrawsSigns
from vendors.adapters.letter_faults import LetterPart, refuse_letter
from vendors.adapters.options import InvalidSettings
from vendors.adapters.reports import FetchedReports, FetchesReports
from vendors.outcomes import Accepted, InDoubt, NotSent, Outcome, Refused
from vendors.printing import acknowledgements, batches, glyphs, places, sheets
from vendors.printing.batches import Sheet
from vendors.printing.options import OPTIONS, find_contradictions
from vendors.printing.pages import Look, NotPrintable, PageMaker, Stopped
from vendors.printing.places import Opens, Place, PlaceError, SftpServer
from vendors.printing.uploading import Upload, not_sent
from vendors.said import Said

MOST_BYTES = 48 << 20  # of a batch's PDFs, which are kept in memory
MOST_MANIFEST = 5 << 20  # bytes read of a manifest
LETTERS_TIME = 0.75  # share of the setting `making` for rendering letters; the rest is for merging them
NEXT_BATCH = 5.0  # least seconds until a letter that did not fit is called again


class PrintFile(FetchesReports, PrintsAddresses, DrawsSigns, Adapter):
    """A vendor that prints PDF files.

    `host`: its SFTP server; without one, folders lie below the setting PRINT_FOLDER on this machine. For SFTP the
    secret holds `password` or `private_key` (OpenSSH, without a passphrase).

    `accepted`: with `acknowledged`, a letter is accepted when a file in `acknowledgements` says so; with `uploaded`,
    the vendor's contract covers whatever is in the folder. `manifests_stay`: manifests stay in the folder for some
    days, so a letter in doubt can be looked up. A missing letter proves nothing.
    """

    options = OPTIONS

    @classmethod
    def validate(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        known = super().validate(settings)
        if errors := find_contradictions(known):
            raise InvalidSettings(errors)
        return known

    @classmethod
    def carries(cls, settings: Mapping[str, Any]) -> frozenset[str]:
        return frozenset({"attachments"})  # images in the HTML

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

    @classmethod
    def missing_glyphs(cls, text: str) -> str:
        return glyphs.find_missing_glyphs(text)

    @classmethod
    def scripts(cls) -> tuple[list[str], list[str]]:
        return glyphs.scripts_of_fonts()

    @classmethod
    def draws_address(cls, settings: Mapping[str, Any]) -> bool:
        return cls.validate(settings)["window"] in sheets.WINDOWS

    def __init__(self, settings: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        self._known = known = self.validate(settings)
        self._opens = self._place_opener(known, secret)
        self._rules = self.address_rules(known)
        self._look = Look(known["paper"], known["window"], known["pages_max"])
        self.concurrency = known["concurrency"]
        self.deadline = known["making"] + known["uploading"] + 2 * known["timeout"] + WIND_UP
        self._acknowledged = known["accepted"] == "acknowledged"
        self.capabilities = Capabilities(
            lookup="weak" if known["manifests_stay"] else "none",
            batch_max=known["batch"],
            cost=one_unit if known["unit"] == "letter" else _least_cost,
        )
        self._makers: list[PageMaker] = []
        self._weigher, self._weighing = PageMaker(), asyncio.Lock()
        self._weighed: dict[tuple[str, str, str], Sheet] = {}  # rendered by `weigh` and reused by `send`; oldest first
        self._seen: dict[str, set[str]] = {}
        self._together = self.capabilities.batch_max  # letters that can be merged in time
        self._closed = False

    @staticmethod
    def _place_opener(known: Mapping[str, Any], secret: Mapping[str, str]) -> Opens:
        """Return how to open the place. Raises InvalidSettings, which never shows a secret."""
        if not known["host"]:
            if secret:
                raise InvalidSettings([Said("a folder needs no secret")])
            return partial(places.open_folder, Path(installation.PRINT_FOLDER))
        if set(secret) not in ({"password"}, {"private_key"}):
            raise InvalidSettings([Said("the secret must hold password or private_key")])
        try:
            places.check_keys(known["host_key"], secret.get("private_key"))
        except ValueError as error:
            raise InvalidSettings([str(error)]) from None
        login = known["host"], known["port"], known["user"], tuple(known["host_key"]), dict(secret)
        return partial(places.open_sftp, SftpServer(*login, known["timeout"]))

    async def open(self) -> None:
        self._closed = False

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(maker.close() for maker in self._makers))
        self._makers.clear()
        await self._weigher.close()
        self._weighed.clear()

    async def weigh(self, letter: Letter) -> int:
        """Return the letter's cost in pages or sheets. A letter that cannot be printed costs one; `send` refuses it.

        An estimate's letter comes without its images; each counts as a dot.
        """
        if self._known["unit"] == "letter":
            return 1
        whole = bool(letter.attachments) or "cid:" not in letter.body
        async with self._weighing:
            made = await self._render_one(self._weigher, letter, time.monotonic() + self._known["making"], whole=whole)
        if not isinstance(made, Sheet):
            return 1
        if whole:
            self._weighed[letter.reference, letter.recipient, letter.body] = made
            while sum(len(one.pdf) for one in self._weighed.values()) > MOST_BYTES:
                del self._weighed[next(iter(self._weighed))]
        return -(-made.pages // 2) if self._known["unit"] == "sheet" and self._known["duplex"] else made.pages

    async def send(self, letters: Sequence[Letter]) -> list[Outcome]:
        made = await self._render_letters(letters)
        if not self._weighing.locked():
            await self._weigher.close()  # starts again with the next letters to weigh
        ready = [one for one in made if isinstance(one, Sheet)]
        if not ready:
            return [one for one in made if not isinstance(one, Sheet)]
        name = batches.batch_name(one.reference for one in ready)
        came = await self._upload_batch(name, ready)
        outcomes: list[Outcome] = []
        for one in made:
            if not isinstance(one, Sheet):
                outcomes.append(one)
            elif came is not None:
                outcomes.append(came)
            elif self._acknowledged:
                reason = f"in the batch {name}, which the vendor has not acknowledged"
                outcomes.append(InDoubt(reason, wait=self._known["acknowledged_within"], answered=True))
            else:
                outcomes.append(Accepted(f"{name}/{one.reference}"))
        return outcomes

    async def _render_letters(self, letters: Sequence[Letter]) -> list[Sheet | Refused | NotSent]:
        """Render letters while time allows; the others wait for the next batch."""
        maker = PageMaker()
        self._makers.append(maker)
        made: list[Sheet | Refused | NotSent] = []
        until, left = time.monotonic() + LETTERS_TIME * self._known["making"], MOST_BYTES
        full = NotSent("there is no room in this batch", retry_after=NEXT_BATCH)
        ready = 0
        try:
            for letter in letters:
                if self._closed:
                    made.append(NotSent("the adapter is closed"))
                elif left <= 0 or ready >= self._together:
                    made.append(full)
                elif known := self._weighed.pop((letter.reference, letter.recipient, letter.body), None):
                    made.append(known)
                else:
                    made.append(full if time.monotonic() >= until else await self._render_one(maker, letter, until))
                if isinstance(made[-1], Sheet):
                    left, ready = left - len(made[-1].pdf), ready + 1
        finally:
            await maker.close()
            if maker in self._makers:
                self._makers.remove(maker)
        return made

    async def _render_one(
        self, maker: PageMaker, letter: Letter, until: float, *, whole: bool = True
    ) -> Sheet | Refused | NotSent:
        """Render one letter. `whole`: all its images are present."""
        rules = self._rules
        for fault in rules.find_faults(letter.recipient, letter.params) if rules else ():
            return refuse_letter(fault, LetterPart.ADDRESS)
        address = (
            rules.address_lines(letter.recipient, letter.params) if rules else addresses.lines_of(letter.recipient)
        )
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                question = self._look.page_request(letter, address) | {"whole": whole}
                printed = await maker.render_letter(question, letter.attachments)
        except NotPrintable as why:
            return refuse_letter(why, why.part)
        except Stopped as error:
            return _judge_stopped(error)
        except TimeoutError:
            return NotSent("its pages were not made in time", retry_after=NEXT_BATCH)
        return Sheet(letter.reference, letter.recipient, printed.pages, address, printed.pdf)

    async def _upload_batch(self, name: str, ready: Sequence[Sheet]) -> NotSent | InDoubt | None:
        """Merge the letters and upload the batch. Returns None if the vendor has it."""
        if self._closed:
            return NotSent("the adapter is closed")
        maker = PageMaker()
        try:
            async with asyncio.timeout((1 - LETTERS_TIME) * self._known["making"]):
                pdf = await maker.merge_parts([one.pdf for one in ready], fronts=self._known["duplex"])
            self._together = min(2 * self._together, self.capabilities.batch_max)
        except Stopped as error:
            return _judge_stopped(error)
        except TimeoutError:  # the machine is busy; halving ends, as a single letter needs no merging
            self._together = max(1, len(ready) // 2)
            return NotSent("its letters were not brought together in time", retry_after=NEXT_BATCH)
        finally:
            await maker.close()
        rows = batches.make_manifest(name, ready, duplex=self._known["duplex"], colour=self._known["colour"])
        upload = Upload(self._opens, self._known["folder"], self._known["temporary"], name)
        return await upload.bring_batch(pdf, rows, self._known["uploading"], 2 * self._known["timeout"])

    async def look_up(self, reference: str) -> Accepted | NotSent | None:
        """Look for the letter in the vendor's manifests."""
        folder = self._known["folder"]
        try:
            async with self._opens() as place:
                for one in await place.list_files(folder):
                    ours = one.name.startswith(batches.PREFIX) and one.name.endswith(".csv")
                    if ours and reference in await self._read_references(place, one.name):
                        return self._judge_found(one.name.removesuffix(".csv"), reference)
        except PlaceError as error:
            return not_sent(error)
        return None

    def _judge_found(self, name: str, reference: str) -> Accepted | NotSent:
        if not self._acknowledged:
            return Accepted(f"{name}/{reference}")
        return NotSent(f"it is in the batch {name}, which the vendor has not acknowledged", retry_after=3600.0)

    async def _read_references(self, place: Place, name: str) -> set[str]:
        """Return the references in a manifest, which never changes. Raises PlaceError if it is unreadable."""
        if name not in self._seen:
            content = await place.read_bytes(f"{self._known['folder']}/{name}", MOST_MANIFEST)
            try:
                self._seen[name] = batches.read_references(content)
            except ValueError as error:
                raise PlaceError(f"the manifest {name}: {error}") from None
        return self._seen[name]

    async def fetch_reports(self) -> AsyncIterator[FetchedReports]:
        try:
            async with self._opens() as place:
                async for one in acknowledgements.fetch_files(place, self._known["acknowledgements"]):
                    yield one
        except PlaceError as error:
            raise OSError(error.reason) from None


def _least_cost(letter: Letter) -> int:
    """Return the least cost, before the pages are rendered: see `weigh`."""
    return 1


def _judge_stopped(error: Stopped) -> NotSent:
    if error.for_good:
        return NotSent(str(error), scope="credential", pause=True)
    return NotSent(str(error), retry_after=NEXT_BATCH)
