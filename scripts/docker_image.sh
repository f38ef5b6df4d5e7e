#!/usr/bin/env bash
# Makes the image of the docker sandbox from this machine's own files: no registry and no network are needed.
#
#   scripts/docker_image.sh [NAME]        turnwise-sandbox:latest unless named; PYTHON=/usr/bin/python3 says which Python
#
# It holds that Python with its standard library, a shell, the usual small programs, and the libraries they load.
# Set DOCKER_HOST for an engine that is not at its usual place.
set -euo pipefail

name=${1:-turnwise-sandbox:latest}
python=$(readlink -f "${PYTHON:-/usr/bin/python3}")
programs="bash sh awk basename cat date dirname id pwd tee xargs ls cp mv rm mkdir rmdir touch head tail wc sort uniq cut tr sed grep find env printf sleep true false diff"

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $python is older than 3.11: set PYTHON" >&2; exit 2; }
docker version > /dev/null 2>&1 || { echo "error: no docker engine answers: start one, or set DOCKER_HOST" >&2; exit 2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{usr/bin,usr/lib,usr/lib64,etc,proc,dev,sys,work,tmp}
ln -s usr/bin "$root/bin"
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"
chmod 1777 "$root/work" "$root/tmp"
printf 'root:x:0:0:root:/:/bin/sh\nagent:x:65534:65534::/work:/bin/sh\n' > "$root/etc/passwd"
printf 'root:x:0:\nagent:x:65534:\n' > "$root/etc/group"

library=$("$python" -S -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
tar --create --file - --exclude=test --exclude=site-packages --exclude=dist-packages \
    --exclude='config-*' --exclude=idlelib --exclude=tkinter --exclude=ensurepip --directory / "${library#/}" |
    tar --extract --file - --directory "$root"

files=("$python")
install -D "$python" "$root$python"
[ "$python" = /usr/bin/python3 ] || ln -sf "$python" "$root/usr/bin/python3"
ln -sf python3 "$root/usr/bin/python"
for program in $programs; do
    if path=$(type -P "$program"); then
        install -D "$(readlink -f "$path")" "$root/usr/bin/$program"
        files+=("$path")
    fi
done
while read -r file; do files+=("$file"); done < <(find "$library/lib-dynload" -name '*.so')
ldd "${files[@]}" 2> /dev/null | grep -oE '/[^ :)]+' | sort -u | while read -r needed; do
    [ -f "$needed" ] || continue
    case $needed in
        /lib/* | /lib64/*) install -D "$(readlink -f "$needed")" "$root/usr$needed" ;;
        *.so*) install -D "$(readlink -f "$needed")" "$root$needed" ;;
    esac
done

tar --create --directory "$root" --owner=0 --group=0 . |
    docker import --change 'WORKDIR /work' --change 'ENV PATH=/usr/bin' - "$name"
