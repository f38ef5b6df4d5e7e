#!/usr/bin/env bash
# Runs the tests of live wikis on a real MediaWiki, which it installs and serves on loopback (root, Debian).
#
#   scripts/mediawiki_suite.sh [ARGUMENT OF PYTEST ...]          PYTHON=FILE names the interpreter (.venv/bin/python)
#
# Fails when a test fails or is skipped, or none ran. Whatever it started is stopped.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
folder=$(mktemp -d)
stop() {
    # Those that tests started too; each with its group, because the workers outlive their server otherwise.
    for file in "$folder"/wiki/server-*.pid; do
        [ -f "$file" ] || continue
        if grep -q "$folder" "/proc/$(cat "$file")/cmdline" 2> /dev/null; then
            kill -KILL -- "-$(cat "$file")" || true
        fi
    done
    rm -rf "$folder"
}
trap stop EXIT

PYTHONPATH=tests:scripts:. "$python" tests/mediawiki/pages.py > "$folder/pages.xml"
scripts/mediawiki.sh install "$folder/wiki" "$folder/pages.xml"
port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
setsid scripts/mediawiki.sh serve "$folder/wiki" "$port" < /dev/null &
for _ in $(seq 100); do
    "$python" -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])))' "$port" 2> /dev/null && break
    sleep 0.1
done

TURNWISE_MEDIAWIKI=$folder/wiki:$port "$python" -m pytest -q -s --color=no -p no:cacheprovider -m '' tests/mediawiki "$@" \
    | tee "$folder/said"
summary=$(tail -n 1 "$folder/said")
if [[ ! $summary =~ [1-9][0-9]*\ passed || $summary =~ skipped ]]; then
    echo "error: not every test of live wikis ran: $summary" >&2
    exit 1
fi
