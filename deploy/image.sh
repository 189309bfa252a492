#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the image edgefirst-capture without a registry: a Debian root by mmdebstrap, then the Containerfile by buildah.
# Converts a recording in it and outside, and compares the datasets. Needs root, mmdebstrap and buildah, and the network.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in mmdebstrap buildah; do
    command -v "$tool" >/dev/null || { echo "image: $tool is missing: apt install mmdebstrap buildah"; exit 2; }
done
python=${PYTHON:-python3}
export STORAGE_DRIVER="${STORAGE_DRIVER:-vfs}" BUILDAH_ISOLATION=chroot
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$work/debian.tar"
base=$(buildah from scratch)
buildah add --quiet "$base" "$work/debian.tar" / >/dev/null
buildah commit --quiet --rm "$base" edgefirst-debian >/dev/null
proxy=()
if [ -n "${PIP_CERT:-}" ]; then # of a network whose proxy has a certificate of its own; nothing of it stays in the image
    printf '[global]\ncert = /run/proxy.crt\n' >"$work/pip.conf"
    proxy=(--volume "$(realpath "$PIP_CERT"):/run/proxy.crt:ro" --volume "$work/pip.conf:/etc/pip.conf:ro")
fi
git archive HEAD | tar -x -C "$work" --one-top-level=source
buildah build --quiet "${proxy[@]}" --build-arg BASE=localhost/edgefirst-debian --tag edgefirst-capture \
    --file deploy/Containerfile "$work/source" >/dev/null
buildah images edgefirst-capture

"$python" -m edgefirst_ros demo -o "$work/demo" >/dev/null
recording=$(echo "$work"/demo/*.mcap)
"$python" -m edgefirst_ros convert "$recording" -o "$work/outside" >/dev/null
install -d -m 777 "$work/inside"
chmod 755 "$work" "$work/demo"
container=$(buildah from edgefirst-capture)
trap 'buildah rm "$container" >/dev/null; rm -rf "$work"' EXIT
buildah run --user 10001 --volume "$work:/work" "$container" -- \
    edgefirst-ros convert "/work/demo/$(basename "$recording")" -o /work/inside >/dev/null
for file in "$work"/outside/*; do
    cmp "$file" "$work/inside/$(basename "$file")"
    echo "image: $(basename "$file") is the same inside and outside"
done
