#!/usr/bin/env bash
# Runs the tests of our environments in TRL, verifiers and OpenEnv, on the real packages, in environments of their own
# (scripts/clients_env.sh makes them).
#
#   scripts/clients_suite.sh [ARGUMENT OF PYTEST ...]          CLIENTS_ENV=FOLDER names their folder (.venv-clients)
#
# Fails when a test fails or is skipped, or none ran.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${CLIENTS_ENV:-.venv-clients}
[ -e "$folder/made" ] || scripts/clients_env.sh "$folder"

said=$(mktemp)
trap 'rm -f "$said"' EXIT
# suite ENVIRONMENT PACKAGES ARGUMENT ...
suite() {
    local environment=$1 packages=$2 summary
    shift 2
    "$folder/$environment/bin/python" -m pytest -q -s --color=no -p no:cacheprovider \
        -m 'runs or not runs' "$@" | tee "$said"
    summary=$(tail -n 1 "$said")
    if [[ ! $summary =~ [1-9][0-9]*\ passed || $summary =~ skipped ]]; then
        echo "error: not every test of $packages ran: $summary" >&2
        exit 1
    fi
}
suite openenv openenv tests/clients/test_for_openenv.py "$@"
suite trainers "trl verifiers" tests/clients/test_for_verifiers.py tests/clients/test_for_trl.py "$@"
