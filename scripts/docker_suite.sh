#!/usr/bin/env bash
# Runs the tests of the docker sandbox on an engine of their own (scripts/with_docker.sh says what that takes).
#
#   scripts/docker_suite.sh [ARGUMENT OF PYTEST ...]
#
# Fails when a test fails or is skipped, or none ran.
set -euo pipefail
cd "$(dirname "$0")/.."

said=$(mktemp)
trap 'rm -f "$said"' EXIT
TURNWISE_NEEDS_DOCKER=1 scripts/with_docker.sh \
    .venv/bin/python -m pytest -q --color=no -m docker tests/agent_envs/code "$@" | tee "$said"
summary=$(tail -n 1 "$said")
if [[ ! $summary =~ [1-9][0-9]*\ passed || $summary =~ skipped ]]; then
    echo "error: not every test of the docker sandbox ran: $summary" >&2
    exit 1
fi
