"""Places for print files: a folder on this machine, or one on an SFTP server."""

from __future__ import annotations

import asyncio
import errno
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from vendors.said import Said

Done = TypeVar("Done")


class PlaceError(Exception):
    """An operation failed. With `answered` False its result is unknown, because the answer was lost.

    `pause`: only a person can fix it.
    """

    def __init__(self, reason: str, *, answered: bool = True, pause: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.answered, self.pause = reason[:200], answered, pause


class PlacedFile(NamedTuple):
    """A file. `changed`: Unix time by the place's clock."""

    name: str
    size: int
    changed: float


class Place(ABC):
    """Files in folders, by paths below the place's root. Each method raises PlaceError."""

    @abstractmethod
    async def write_file(self, path: str, content: bytes) -> None:
        """Write a whole file and flush it to disk."""

    @abstractmethod
    async def rename_file(self, old: str, new: str) -> None:
        """Rename atomically, so nobody sees half a file."""

    @abstractmethod
    async def remove_file(self, path: str) -> bool:
        """Remove a file. Returns False if there is none."""

    @abstractmethod
    async def file_size(self, path: str) -> int | None:
        """Return a file's size, or None if there is no file."""

    @abstractmethod
    async def read_bytes(self, path: str, most: int, begin: int = 0) -> bytes:
        """Return at most `most` bytes from `begin` on."""

    @abstractmethod
    async def list_files(self, folder: str) -> list[PlacedFile]:
        """Return the files in a folder by name."""


Opens = Callable[[], AbstractAsyncContextManager[Place]]

MENDED_BY_A_PERSON = {errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EROFS, errno.ELOOP}


class LocalFolder(Place):
    """A folder on this machine. Its calls run in threads, because disks may be slow."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def write_file(self, path: str, content: bytes) -> None:
        def write_synced() -> None:
            with open(self._resolve_path(path), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())

        await self._run_in_thread(write_synced)

    async def rename_file(self, old: str, new: str) -> None:
        def rename_synced() -> None:
            os.rename(self._resolve_path(old), self._resolve_path(new))
            with suppress(OSError):  # some file systems cannot sync a folder; the rename holds anyway
                handle = os.open(self._resolve_path(new).parent, os.O_RDONLY)
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)

        await self._run_in_thread(rename_synced)

    async def remove_file(self, path: str) -> bool:
        def unlink_file() -> bool:
            try:
                self._resolve_path(path).unlink()
            except FileNotFoundError:
                return False
            return True

        return await self._run_in_thread(unlink_file)

    async def file_size(self, path: str) -> int | None:
        def stat_size() -> int | None:
            try:
                return self._resolve_path(path).stat().st_size
            except FileNotFoundError:
                return None

        return await self._run_in_thread(stat_size)

    async def read_bytes(self, path: str, most: int, begin: int = 0) -> bytes:
        def read_part() -> bytes:
            with open(self._resolve_path(path), "rb") as file:
                file.seek(begin)
                return file.read(most)

        return await self._run_in_thread(read_part)

    async def list_files(self, folder: str) -> list[PlacedFile]:
        def scan_files() -> list[PlacedFile]:
            with os.scandir(self._resolve_path(folder)) as found:
                facts = [(one.name, one.stat(follow_symlinks=False)) for one in found if one.is_file()]
            return sorted(PlacedFile(name, about.st_size, about.st_mtime) for name, about in facts)

        return await self._run_in_thread(scan_files)

    def _resolve_path(self, path: str) -> Path:
        """Resolve a path. Raises PlaceError if it leads out of the root, even by a link."""
        found = (self._root / path.lstrip("/")).resolve()
        if not found.is_relative_to(self._root.resolve()):
            raise PlaceError(f"{path} leads out of the folder of print files", pause=True)
        return found

    @staticmethod
    async def _run_in_thread(work: Callable[[], Done]) -> Done:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            pause = error.errno in MENDED_BY_A_PERSON
            raise PlaceError(f"the folder: {error.strerror or error}", pause=pause) from None


@asynccontextmanager
async def open_folder(root: Path) -> AsyncIterator[Place]:
    yield LocalFolder(root)


class SftpServer(NamedTuple):
    """An SFTP server. `host_keys`: its keys, as in known_hosts. `secret`: private_key or password."""

    host: str
    port: int
    user: str
    host_keys: tuple[str, ...]
    secret: dict[str, str]
    timeout: float


def check_keys(host_keys: Sequence[str], private_key: str | None) -> None:
    """Check the keys. Raises ValueError, which never shows a private key."""
    import asyncssh

    for one in host_keys:
        try:
            asyncssh.import_public_key(one)
        except (asyncssh.KeyImportError, ValueError):
            raise ValueError(Said("host_key %(name)s is no public key", name=one[:40])) from None
    if private_key:
        try:
            asyncssh.import_private_key(private_key)
        except (asyncssh.KeyImportError, ValueError):  # also with a passphrase
            raise ValueError(Said("the secret's private_key must be a private key without a passphrase")) from None


class Sftp(Place):
    """A server, over one connection."""

    def __init__(self, client: Any, timeout: float) -> None:
        self._client, self._timeout = client, timeout

    async def write_file(self, path: str, content: bytes) -> None:
        async def write_remote() -> None:
            from asyncssh import SFTPOpUnsupported

            file = await self._client.open(path, "wb")  # not closed on failure, which would wait for another answer
            await file.write(content)
            with suppress(SFTPOpUnsupported):
                await file.fsync()
            await file.close()

        await self._run_limited(write_remote(), slow=True)
        if (size := await self.file_size(path)) != len(content):
            raise PlaceError(f"the server has kept {size or 0:,} of {len(content):,} bytes")

    async def rename_file(self, old: str, new: str) -> None:
        await self._run_limited(self._client.rename(old, new))

    async def remove_file(self, path: str) -> bool:
        from asyncssh import SFTPNoSuchFile

        async def remove_remote() -> bool:
            try:
                await self._client.remove(path)
            except SFTPNoSuchFile:
                return False
            return True

        return await self._run_limited(remove_remote())

    async def file_size(self, path: str) -> int | None:
        from asyncssh import SFTPNoSuchFile

        async def remote_size() -> int | None:
            try:
                return (await self._client.stat(path)).size or 0
            except SFTPNoSuchFile:
                return None

        return await self._run_limited(remote_size())

    async def read_bytes(self, path: str, most: int, begin: int = 0) -> bytes:
        async def read_remote() -> bytes:
            file = await self._client.open(path, "rb")
            content: bytes = await file.read(most, begin)
            await file.close()
            return content

        return await self._run_limited(read_remote(), slow=True)

    async def list_files(self, folder: str) -> list[PlacedFile]:
        from asyncssh import FILEXFER_TYPE_REGULAR

        async def scan_remote() -> list[PlacedFile]:
            found = [one async for one in self._client.scandir(folder)]
            return sorted(
                PlacedFile(_decode_name(one.filename), one.attrs.size or 0, float(one.attrs.mtime or 0))
                for one in found
                if one.attrs.type == FILEXFER_TYPE_REGULAR
            )

        return await self._run_limited(scan_remote())

    async def _run_limited(self, work: Awaitable[Done], *, slow: bool = False) -> Done:
        """Run one operation. `slow`: its time grows with the file, so the caller limits it."""
        import asyncssh

        try:
            async with asyncio.timeout(None if slow else self._timeout):
                return await work
        except (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection) as error:
            raise PlaceError(f"the connection was lost: {error.reason}", answered=False) from None
        except asyncssh.SFTPError as error:
            pause = isinstance(error, asyncssh.SFTPPermissionDenied | asyncssh.SFTPNoSuchFile)
            raise PlaceError(f"the server: {type(error).__name__}: {error.reason}", pause=pause) from None
        except TimeoutError:
            raise PlaceError("the server does not answer", answered=False) from None
        except (OSError, asyncssh.Error) as error:
            raise PlaceError(f"the connection was lost: {error}", answered=False) from None


@asynccontextmanager
async def open_sftp(server: SftpServer) -> AsyncIterator[Place]:
    """Open a connection and cut it at the end. Raises PlaceError."""
    import asyncssh

    asyncssh.set_log_level("WARNING")  # it logs every connection
    password, key = server.secret.get("password"), server.secret.get("private_key")
    try:
        async with asyncio.timeout(server.timeout):
            connection = await asyncssh.connect(
                server.host,
                server.port,
                username=server.user,
                known_hosts=([asyncssh.import_public_key(one) for one in server.host_keys], [], []),
                client_keys=[asyncssh.import_private_key(key)] if key else None,
                password=password,
                agent_path=None,
                config=None,
                x509_trusted_certs=None,
                gss_host=None,
                connect_timeout=server.timeout,
                login_timeout=server.timeout,
                keepalive_interval=15,
            )
    except asyncssh.HostKeyNotVerifiable as error:
        raise PlaceError(f"the server shows another host key: {error.reason}", pause=True) from None
    except asyncssh.PermissionDenied as error:
        raise PlaceError(f"the server refuses the login: {error.reason}", pause=True) from None
    except (OSError, asyncssh.Error) as error:  # also TimeoutError
        raise PlaceError(f"no connection: {str(error) or type(error).__name__}") from None
    try:
        try:
            async with asyncio.timeout(server.timeout):
                client = await connection.start_sftp_client()
        except (OSError, asyncssh.Error) as error:
            raise PlaceError(f"no SFTP: {str(error) or type(error).__name__}") from None
        yield Sftp(client, server.timeout)
    finally:
        connection.abort()


def _decode_name(name: Any) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
