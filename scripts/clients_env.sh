#!/usr/bin/env bash
# Makes Python environments with other people's trainers and clients, for the tests of our environments in them.
#
#   scripts/clients_env.sh FOLDER          PYTHON names the Python that the project is installed for (.venv/bin/python)
#
# verifiers and OpenEnv want two versions of mcp, neither of which is that of the extra `mcp`: FOLDER/trainers has TRL and
# verifiers, FOLDER/openenv has OpenEnv. Each sees the packages of the project's own environment after its own.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || { echo "error: scripts/clients_env.sh FOLDER" >&2; exit 2; }

folder=$1 python=${PYTHON:-.venv/bin/python}
pinned() { sed -n "s/^$1 = \[\"\(.*\)\"\]/\1/p" pyproject.toml; }
site='import sysconfig; print(sysconfig.get_path("purelib"))'
# make NAME EXTRA ...
make() {
    local place=$folder/$1 wanted=()
    shift
    for extra in "$@"; do wanted+=("$(pinned "$extra")"); done
    [ -x "$place/bin/python" ] || "$python" -m venv "$place"
    "$python" -c "$site" > "$("$place/bin/python" -c "$site")/after.pth"
    "$place/bin/python" -m pip --quiet --disable-pip-version-check install "${wanted[@]}"
}
make trainers trl verifiers
make openenv openenv
touch "$folder/made"
