#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Converts recordings by the code of aarch64 (qemu-user, Cortex-A53), and compares all files with those made here.
# Arguments: recordings; none: that of the demo. Needs mmdebstrap and qemu-user-static, and the network. Minutes to hours.
set -euo pipefail
cd "$(dirname "$0")/.."
for tool in mmdebstrap qemu-aarch64-static; do
    command -v "$tool" >/dev/null || { echo "aarch64: $tool is missing: apt install mmdebstrap qemu-user-static"; exit 2; }
done
python=${PYTHON:-python3}
work=${AARCH64_CACHE:-$PWD/.cache/aarch64}
mkdir -p "$work"

if [ ! -d "$work/root" ]; then  # unpacked only: nothing of it is run but Python
    mmdebstrap --quiet --arch=arm64 --variant=extract --include=python3,libstdc++6 bookworm "$work/root.new"
    mv "$work/root.new" "$work/root"
fi
if [ ! -d "$work/site" ]; then
    "$python" - > "$work/requirements" <<'PYTHON'
import re
print("\n".join(re.findall(r'"([^"]+)"', re.search(r"install_requires=\[(.*?)\]", open("setup.py").read(), re.S)[1])))
PYTHON
    "$python" -m pip install --quiet --target "$work/site.new" --only-binary=:all: --implementation cp \
        --python-version 3.11 --abi cp311 --abi abi3 --abi none --platform manylinux_2_28_aarch64 \
        --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 -r "$work/requirements"
    mv "$work/site.new" "$work/site"
fi
emulated() {
    PYTHONPATH="$PWD:$work/site" PYTHONDONTWRITEBYTECODE=1 QEMU_CPU=cortex-a53 \
        qemu-aarch64-static -L "$work/root" "$work/root/usr/bin/python3.11" -m edgefirst_ros "$@"
}
if [ $# -eq 0 ]; then
    rm -rf "$work/demo"
    "$python" -m edgefirst_ros demo -o "$work/demo" >/dev/null
    set -- "$work"/demo/*.mcap
fi
different=0
for recording in "$@"; do
    rm -rf "$work/here" "$work/there"
    "$python" -m edgefirst_ros convert "$recording" -o "$work/here" >/dev/null
    emulated convert "$recording" -o "$work/there" >/dev/null
    for file in "$work"/here/*; do
        if cmp "$file" "$work/there/$(basename "$file")"; then
            echo "aarch64: $(basename "$file"): the same $(stat -c %s "$file") bytes"
        else
            different=1
        fi
    done
done
exit $different
