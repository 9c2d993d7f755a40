#!/bin/sh
# Install the other proxies that `python -m tools.bench` measures when it finds them, each into a folder of its own outside
# the project: $BENCH_PEERS, or ~/.cache/context-proxy-bench. Needs python3.11 or later, and node for Portkey; about 1.5 GB.
set -eu
peers="${BENCH_PEERS:-$HOME/.cache/context-proxy-bench}"
python="${PYTHON:-python3}"
mkdir -p "$peers"

install_python() { # folder, requirement
    "$python" -m venv "$peers/$1"
    "$peers/$1/bin/python" -m pip install --quiet "$2" || echo "$1 could not be installed; the bench continues without it" >&2
}

install_python litellm 'litellm[proxy]'
install_python headroom 'headroom-ai[proxy]'
if command -v npm >/dev/null; then
    npm install --silent --prefix "$peers/portkey" @portkey-ai/gateway || echo "Portkey could not be installed" >&2
fi
