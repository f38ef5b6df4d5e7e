#!/usr/bin/env bash
# Runs the tests of the vLLM engine on a real vLLM, in an environment of its own (scripts/vllm_env.sh makes it).
#
#   scripts/vllm_suite.sh [ARGUMENT OF PYTEST ...]          VLLM_ENV=FOLDER names the environment (.venv-vllm)
#
# Fails when a test fails or is skipped, or none ran.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=${VLLM_ENV:-.venv-vllm}
"$folder/bin/python" -c 'import vllm' 2> /dev/null || scripts/vllm_env.sh "$folder"

said=$(mktemp)
trap 'rm -f "$said"' EXIT
TURNWISE_NEEDS_VLLM=1 "$folder/bin/python" -m pytest -q -s --color=no -p no:cacheprovider tests/vllm_engine "$@" | tee "$said"
summary=$(tail -n 1 "$said")
if [[ ! $summary =~ [1-9][0-9]*\ passed || $summary =~ skipped ]]; then
    echo "error: not every test of the vLLM engine ran: $summary" >&2
    exit 1
fi
