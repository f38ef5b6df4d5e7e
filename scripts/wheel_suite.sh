#!/usr/bin/env bash
# Installs the wheel with its dependencies into an empty environment, outside the repository, and uses it there.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
python=$(command -v "${PYTHON:-python3}")
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir "$place/source" "$place/work"
cp -r "$root"/{agent_envs,agents,algorithms,runners,turnwise_verifiers.py,tests/outside,pyproject.toml,README.md,LICENSE} "$place/source"
"$python" -m venv "$place/env"
pip() { "$place/env/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
pip install torch==2.13.0
pip wheel --no-deps --wheel-dir "$place/wheels" "$place/source" "$place/source/outside"
pip install "$place"/wheels/*.whl
cd "$place/work"
export TURNWISE_CACHE="$place/cache"
turnwise="$place/env/bin/turnwise"
"$turnwise" --version
"$turnwise" list
"$turnwise" doctor
"$turnwise" train --env identity --updates 2 --test-tasks 43 --eval-tasks 43 --out run
"$turnwise" evaluate --env identity --model run --tasks 43 --samples 1
# The tiny models of the package are in the wheel.
"$turnwise" pretrain --env corridor | grep "site-packages/runners/cloning/packaged/corridor"
"$turnwise" list | grep babyai
"$turnwise" train --env count_up --agent hinted --engine recompute --slots 8 --updates 2 --episodes 16 --minibatches 2 \
    --test-tasks 0 --eval-every 0 --react.max-action-tokens 16 --pretrain.demonstrations 100 --pretrain.steps 20
"$turnwise" view run
test -s run/view.html
