#!/usr/bin/env bash
# Runs a command beside a docker engine of its own, and leaves nothing of that engine behind.
#
#   scripts/with_docker.sh COMMAND [ARGUMENT ...]       by root, on Debian; installs docker.io where it is missing
#
# DOCKER_HOST leads the command to the engine, which has the image of the docker sandbox. The engine lives in process
# and mount namespaces of its own: with its first process all that it started ends, and all that it mounted goes. Other
# engines of this machine, their settings and a containerd that runs are not touched.
set -euo pipefail
cd "$(dirname "$0")/.."

python=.venv/bin/python
refuse() { echo "error: $*" >&2; exit 2; }
[ $# -gt 0 ] || refuse "no command: scripts/with_docker.sh COMMAND [ARGUMENT ...]"
[ "$(id -u)" = 0 ] || refuse "only root can start an engine; with one that runs, use scripts/docker_image.sh"
[ -x "$python" ] || refuse "there is no $python: run make install"

if ! command -v dockerd > /dev/null || ! command -v docker > /dev/null; then
    command -v apt-get > /dev/null || refuse "there is no dockerd, and no apt-get to install it with"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update
    apt-get install --yes --no-install-recommends docker.io
    # Since Debian 13 the client is a package of its own.
    command -v docker > /dev/null || apt-get install --yes --no-install-recommends docker-cli
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/turnwise-docker.XXXXXX")
group=$(basename "$work")
engine=

stop() {
    status=$?
    trap '' INT TERM
    if [ -n "$engine" ]; then
        # Its child is the first process of the namespace; unshare ends when everything in there has ended.
        children=$(cat "/proc/$engine/task/$engine/children" 2> /dev/null || true)
        xargs --no-run-if-empty kill -KILL <<< "$children" || true
        wait "$engine" 2> /dev/null || true
    fi
    for _ in {1..50}; do # a control group can be removed a moment after its last process
        find /sys/fs/cgroup -depth -type d -path "*/$group*" -exec rmdir {} + 2> /dev/null && break
        sleep 0.1
    done
    rm -rf "$work"
    exit "$status"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() { # STATUS REASON
    printf 'error: %s; the end of the log of the engine:\n' "$2" >&2
    tail -n 20 "$work/log" >&2
    exit "$1"
}

unset DOCKER_CONTEXT DOCKER_TLS_VERIFY DOCKER_CERT_PATH
export DOCKER_HOST=unix://$work/docker.sock
echo '{}' > "$work/daemon.json"
# Covered: in /run it would find and use a containerd of the system, and into the others it writes whatever it is told.
cover='for folder in /run /opt /etc/docker; do [ ! -d "$folder" ] || mount -t tmpfs tmpfs "$folder" || exit; done'
setpriv --pdeathsig KILL unshare --mount --pid --fork --kill-child --mount-proc \
    sh -c "$cover; exec \"\$@\"" engine \
    dockerd --config-file "$work/daemon.json" --host "$DOCKER_HOST" --pidfile "$work/docker.pid" \
    --data-root "$work/data" --exec-root "$work/exec" \
    --exec-opt native.cgroupdriver=cgroupfs --cgroup-parent "/$group" \
    --bridge=none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false > "$work/log" 2>&1 &
engine=$!

deadline=$((SECONDS + 60))
until docker version > /dev/null 2>&1; do
    kill -0 "$engine" 2> /dev/null || fail 1 "the docker engine ended"
    [ "$SECONDS" -lt "$deadline" ] || fail 1 "the docker engine does not answer"
    sleep 0.2
done

# With the Python of this project in the image, what a program prints there can be compared with what it prints here.
PYTHON=$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))')
PYTHON=$PYTHON scripts/docker_image.sh > "$work/image" || fail 1 "no image was made"
"$@" || fail $? "$1 ended with exit status $?"
