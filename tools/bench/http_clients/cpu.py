"""Cost of each HTTP client: CPU per request and per streamed chunk, time to the first byte, memory.

Rule: rounds are interleaved and medians are shown; only ratios are worth quoting from another machine. If nginx is
installed, it is the floor.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tools.bench.accounting import cpu_seconds, resident_bytes
from tools.bench.http_clients.processes import EVENTS, make_certificate, nginx, started


async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, size: int) -> tuple[float, int]:
    """One POST of `size` bytes on an open connection: (seconds to the first byte, reads of the body)."""
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\r\n"
    began = time.perf_counter()
    writer.write(head.encode() + b"y" * size)
    received = await reader.readuntil(b"\r\n\r\n")
    first = time.perf_counter() - began
    reads = 0
    if b"chunked" in received.lower():
        tail = b""
        while not tail.endswith(b"0\r\n\r\n"):
            tail = tail[-5:] + await reader.read(65536)
            reads += 1
    else:
        await reader.readexactly(int(received.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
    return first, reads


async def load(port: int, path: str, size: int, requests: int, parallel: int) -> tuple[list[float], int]:
    """`requests` calls over `parallel` connections: (seconds to the first byte of each, reads in all)."""
    firsts: list[float] = []
    reads = 0

    async def caller() -> None:
        nonlocal reads
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(requests // parallel):
            first, more = await call(reader, writer, path, size)
            firsts.append(first)
            reads += more
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(caller() for _ in range(parallel)))
    return firsts, reads


def one_round(pid: int, port: int, *, streams: bool = True) -> dict[str, float]:
    """The figures of one proxy, once."""

    def cpu_ms(path: str, size: int, requests: int) -> float:
        before = cpu_seconds(pid)
        asyncio.run(load(port, path, size, requests, 8))
        return (cpu_seconds(pid) - before) * 1000 / requests

    asyncio.run(load(port, "/small", 2_000, 40, 8))
    figures = {"2 KB ms": cpu_ms("/small", 2_000, 640)}
    if streams:
        figures["200 KB ms"] = cpu_ms("/large", 200_000, 160)
        before = cpu_seconds(pid)
        _, reads = asyncio.run(load(port, "/stream", 2_000, 8, 4))
        used = cpu_seconds(pid) - before - 8 * figures["2 KB ms"] / 1000
        figures["chunk µs"] = used * 1e6 / (8 * EVENTS)
        figures["reads per event"] = reads / (8 * EVENTS)
        firsts, _ = asyncio.run(load(port, "/small", 2_000, 100, 1))
        figures["first byte ms"] = statistics.median(firsts) * 1000
    return figures


def measure(rounds: int, names: list[str]) -> None:
    """Run `rounds` interleaved rounds over the clients and print the medians."""
    here = [sys.executable, "-m", "tools.bench.http_clients"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        make_certificate(folder)
        _, (plain, secure) = stack.enter_context(started(*here, "upstream", str(folder)))
        trusted = {"SSL_CERT_FILE": str(folder / "cert.pem")}
        proxies: dict[str, tuple[int, list[int]]] = {}
        if shutil.which("nginx"):
            proxies["nginx"] = stack.enter_context(nginx(folder, f"127.0.0.1:{plain}"))
        for name in names:
            over = stack.enter_context(started(*here, "serve", name, f"http://127.0.0.1:{plain}"))
            proxies[name] = over
            secured = started(*here, "serve", name, f"https://localhost:{secure}", **trusted)
            proxies[name + " TLS"] = stack.enter_context(secured)
        found: dict[str, list[dict[str, float]]] = {name: [] for name in proxies}
        direct: list[float] = []
        for _ in range(rounds):
            firsts, _ = asyncio.run(load(plain, "/small", 2_000, 100, 1))
            direct.append(statistics.median(firsts) * 1000)
            for name, (pid, (port,)) in proxies.items():
                found[name].append(one_round(pid, port, streams=not name.endswith("TLS")))
        megabytes = {name: resident_bytes(pid) / 1e6 for name, (pid, _) in proxies.items()}
    print("| client | 2 KB ms | × first | 2 KB TLS ms | 200 KB ms | chunk µs | × first | first byte added ms | MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    medians = {name: {key: statistics.median(r[key] for r in rows) for key in rows[0]} for name, rows in found.items()}
    base = next(iter(medians.values()))
    for name, row in medians.items():
        if name.endswith("TLS"):
            continue
        secured_ms = f"{medians[name + ' TLS']['2 KB ms']:.2f}" if name + " TLS" in medians else "–"
        print(
            f"| {name} | {row['2 KB ms']:.3f} | {row['2 KB ms'] / base['2 KB ms']:.1f} | {secured_ms} "
            f"| {row['200 KB ms']:.2f} | {row['chunk µs']:.0f} | {row['chunk µs'] / base['chunk µs']:.1f} "
            f"| {row['first byte ms'] - statistics.median(direct):.2f} | {megabytes[name]:.0f} |"
        )
