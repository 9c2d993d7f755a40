"""Cost of each HTTP client as the upstream side of a proxy, and whether it does what a proxy needs.

    python -m tools.bench.http_clients cpu        # CPU per request and per streamed chunk, time to first byte
    python -m tools.bench.http_clients checks     # what each client does on the wire

Both print a Markdown table; docs/decisions/0001-http-client.md is made from them. Rule: a process whose memory is
measured loads only what it runs.
"""

from __future__ import annotations

import argparse

from tools.bench.http_clients.clients import CLIENTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    cpu = commands.add_parser("cpu", help="CPU, time to first byte and memory of each client")
    cpu.add_argument("--rounds", type=int, default=3)
    cpu.add_argument("--client", action="append", choices=list(CLIENTS), help="only these; may be repeated")
    checks = commands.add_parser("checks", help="what each client does on the wire")
    checks.add_argument("--client", action="append", choices=list(CLIENTS), help="only these; may be repeated")
    internal = commands.add_parser("serve", help="(internal) the proxy's process")
    internal.add_argument("client", choices=list(CLIENTS))
    internal.add_argument("base_url")
    upstream = commands.add_parser("upstream", help="(internal) the upstream's process")
    upstream.add_argument("folder")
    chosen = parser.parse_args()
    if chosen.command == "cpu":
        from tools.bench.http_clients.cpu import measure

        measure(chosen.rounds, chosen.client or list(CLIENTS))
    elif chosen.command == "checks":
        import uvloop

        from tools.bench.http_clients.checks import check_all

        uvloop.run(check_all(chosen.client or list(CLIENTS)))
    elif chosen.command == "serve":
        from tools.bench.http_clients.processes import serve

        serve(chosen.client, chosen.base_url)
    else:
        from tools.bench.http_clients.processes import serve_upstream

        serve_upstream(chosen.folder)


if __name__ == "__main__":
    main()
