"""Names and certificates of an upstream: it moves, stops resolving, resolves slowly or not at all, or is not trusted.

Rule: an error says what is wrong, in the response and in `/readyz`, and ends with its cause, without a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import os
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from support.upstream import SocketServer

from tools.faults.stage import Stage, Upstream, chat, ended, started
from tools.faults.trials import Extent, Tried

_NAME: Final = "model.test"
_HANGS_SECONDS: Final = 60
_IDLE_SECONDS: Final = 5.0
"""After which the proxy has closed its connections to an upstream without TLS."""
_QUICK_SECONDS: Final = 5.0
_LOOK_UP_SECONDS: Final = 5.0
"""For one look-up, whose callers share it."""
_SLACK_SECONDS: Final = 2.0
_TROUBLES: Final = {"fails": b"name is unknown", "hangs": b"was not resolved within", "slow": b""}
"""Trouble → text of the error; empty if there is none."""
_LIMIT_SECONDS: Final = 10.0
"""That a request may take whose upstream's name does not resolve: the default of `upstream.connect_timeout_seconds`."""
_RESOLVER: Final = f"""
import socket, time
_found = socket.getaddrinfo
def getaddrinfo(host, *given, **named):
    if host != {_NAME!r}:
        return _found(host, *given, **named)
    address = open({{path!r}}).read()
    if address == "hangs":
        time.sleep({_HANGS_SECONDS})
    if address == "slow":
        time.sleep(2)
        address = "127.0.0.1"
    if address in ("fails", "hangs"):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return _found(address, *given, **named)
socket.getaddrinfo = getaddrinfo
"""
"""Patches the resolver in the proxy's process to read its result from a file: the system's cannot be changed."""


@contextlib.contextmanager
def _environment(**names: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextlib.asynccontextmanager
async def _started(folder: Path, upstream: Upstream, address: str) -> AsyncIterator[Stage]:
    stage = await started(folder, upstream, address)
    try:
        yield stage
    finally:
        await ended(stage)


async def names(extent: Extent) -> list[Tried]:
    """The name of the upstream resolves otherwise, late, or not at all."""
    moved = Tried("A name that moved to another address costs no request", "requests after the move")
    says = Tried("A name that does not resolve is named as the cause", "a request and `/readyz`, failing and hanging")
    back = Tried("A name that resolves again is used within five seconds", "requests beside look-ups that still hang")
    beside = Tried("A look-up that hangs delays no other request", "/healthz beside requests that wait for it")
    upstream = Upstream()
    most_seconds = _LIMIT_SECONDS + extent.patience * _QUICK_SECONDS
    with tempfile.TemporaryDirectory(prefix="faults-") as made:
        folder, resolver = Path(made), Path(made) / "resolver"
        (folder / "sitecustomize.py").write_text(_RESOLVER.format(path=str(resolver)))
        resolver.write_text("127.0.0.1")
        server = await SocketServer(upstream).open()
        port = server.port
        with _environment(PYTHONPATH=str(folder)):
            async with _started(folder, upstream, f"http://{_NAME}:{port}/v1") as stage:
                moved.note("before", held=await _answers(stage))
                await server.close()
                await asyncio.sleep(_IDLE_SECONDS)
                server = await SocketServer(upstream, port, host="127.0.0.2").open()
                resolver.write_text("127.0.0.2")
                for number in range(10):
                    moved.note(f"request {number}", held=await _answers(stage))
                await server.close()
                server = await SocketServer(upstream, port).open()
                for trouble, words in (
                    ("fails", b"name is unknown"),
                    ("hangs", b"was not resolved within"),
                    ("slow", b""),
                ):
                    await asyncio.sleep(_IDLE_SECONDS)
                    resolver.write_text("127.0.0.1")
                    await server.close()
                    await stage.ask(chat())  # no one accepts the connection, so the address is forgotten
                    server = await SocketServer(upstream, port).open()
                    resolver.write_text(trouble)
                    begun = time.perf_counter()
                    waiting = asyncio.gather(*(stage.ask(chat()) for _ in range(20)))
                    await asyncio.sleep(0.5)
                    at = time.perf_counter()
                    is_well = await stage.is_well()
                    beside.note(
                        f"{trouble}: {is_well}",
                        held=is_well and time.perf_counter() - at < extent.patience * _QUICK_SECONDS,
                    )
                    for heard in await waiting:
                        seconds = time.perf_counter() - begun
                        held = words in heard.body and (heard.status == 200) == (not words) and seconds < most_seconds
                        says.note(f"{trouble}: {heard.status} {heard.body[:200]!r} in {seconds:.0f} s", held=held)
                    if words:
                        why = await _why_not_ready(stage)
                        says.note(f"{trouble}: /readyz says {why!r}", held=why != "")
                    resolver.write_text("127.0.0.1")
                    at = time.perf_counter()
                    while not await _answers(stage) and time.perf_counter() - at < most_seconds:
                        pass  # it waited with others for the last look-up that hung
                    seconds = time.perf_counter() - at
                    back.note(
                        f"after {trouble}: {seconds:.1f} s",
                        held=seconds < _LOOK_UP_SECONDS + extent.patience * _SLACK_SECONDS,
                    )
                    for number in range(10):
                        back.note(f"after {trouble}: request {number}", held=await _answers(stage))
        await server.close()
    return [moved, says, back, beside]


async def _answers(stage: Stage) -> bool:
    return (await stage.ask(chat())).status == 200


async def _why_not_ready(stage: Stage) -> str:
    heard = await stage.get("/readyz")
    for _try in range(40):  # a result is valid for some seconds
        if heard.status != 200:
            break
        await asyncio.sleep(0.5)
        heard = await stage.get("/readyz")
    return str(json.loads(heard.body).get("reasons", ""))


async def certificates(_: Extent) -> list[Tried]:
    """An upstream with a certificate that is not trusted, and then with one that is."""
    says = Tried("A certificate that is not trusted is refused, with the reason", "a request and `/readyz` for each")
    back = Tried("A certificate that was replaced is trusted without a restart", "the next request")
    with tempfile.TemporaryDirectory(prefix="faults-") as made:
        folder = Path(made)
        authority = _Authority(folder / "authority.pem")
        unknown = _Authority(folder / "unknown.pem")
        troubles = {
            "expired": (authority.issue(folder / "expired.pem", ends=-1), b"has expired"),
            "of another name": (authority.issue(folder / "other.pem", name="other.test"), b"Hostname mismatch"),
            "self-signed": (unknown.file, b"self-signed"),
            "of an unknown authority": (unknown.issue(folder / "foreign.pem"), b"unable to get local issuer"),
        }
        good = authority.issue(folder / "good.pem")
        upstream, context = Upstream(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(good)
        server = await SocketServer(upstream, tls=context).open()
        address = f"https://localhost:{server.port}/v1"
        with _environment(SSL_CERT_FILE=str(authority.file)):
            for name, (chain, words) in troubles.items():
                context.load_cert_chain(chain)
                async with _started(folder, upstream, address) as stage:
                    heard = await stage.ask(chat())
                    says.note(f"{name}: {heard.body[:300]!r}", held=heard.status == 502 and words in heard.body)
                    why = await _why_not_ready(stage)
                    says.note(f"{name}: /readyz says {why!r}", held=words.decode() in why)
                    context.load_cert_chain(good)
                    back.note(name, held=await _answers(stage))
        await server.close()
    return [says, back]


class _Authority:
    """Signs certificates; its own is self-signed."""

    def __init__(self, file: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, file.stem)])
        self.file = self._written(file, self._name, self._key, "localhost", 2, is_authority=True)

    def issue(self, file: Path, *, name: str = "localhost", ends: int = 2) -> Path:
        """A certificate and its key in one file; `ends`: days from now."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        return self._written(file, subject, ec.generate_private_key(ec.SECP256R1()), name, ends)

    def _written(
        self, file: Path, subject: x509.Name, key: Any, name: str, ends: int, *, is_authority: bool = False
    ) -> Path:
        now = datetime.datetime.now(datetime.UTC)
        signer = self._key.public_key()
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=9))
            .not_valid_after(now + datetime.timedelta(days=ends))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            # What Python checks since 3.13, RFC 5280:
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
            .add_extension(_usage(is_authority), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        plain = serialization.NoEncryption()
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
        return file


def _usage(is_authority: bool) -> x509.KeyUsage:
    """Signing handshakes, and the certificates of others if it is an authority's."""
    names = "content_commitment key_encipherment data_encipherment key_agreement encipher_only decipher_only"
    others = dict.fromkeys(names.split(), False)
    return x509.KeyUsage(digital_signature=True, key_cert_sign=is_authority, crl_sign=is_authority, **others)
