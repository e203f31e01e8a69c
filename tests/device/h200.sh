#!/bin/sh
# Holds pagelm against what an NVIDIA H200 allows, through Vulkan, in under 6 minutes. See h200.py for what and how.
#
# The machine with the GPU is bare: it gets this repository's files, a binary made here, and the Vulkan loader as Debian packages.
# Here, once, in the repository's root (the folder .device is ignored by git, by .git/info/exclude):
#
#     sh tests/device/h200.sh prepare
#
# There, in a copy of the repository with .device (about 15 MB):
#
#     sh tests/device/h200.sh
#
# Here, to try the script on a software adapter with tiny models:
#
#     PAGELM_TINY=1 sh tests/device/h200.sh
#
# Its JSON goes to $OUT/h200.json, or to .device/h200.json where OUT is not set. Exit codes: 0 all targets met, 1 one missed or a
# measurement failed, 3 no GPU to measure.
set -eu
cd "$(dirname "$0")/../.."
FOLDER=.device
# The driver's Vulkan library leans on the loaders of OpenGL, too.
LOADERS="libvulkan1 libegl1 libglvnd0 libopengl0 libgl1 libglx0 libgles2"

if [ "${1:-}" = prepare ]; then
    grep -qs '^/.device/$' "$(git rev-parse --git-path info/exclude)" || echo '/.device/' >> "$(git rev-parse --git-path info/exclude)"
    cargo build --release --locked --bin pagelm
    mkdir -p "$FOLDER"
    cp "${CARGO_TARGET_DIR:-target}/release/pagelm" "$FOLDER/pagelm"
    lists=$(mktemp -d)
    mkdir -p "$lists/partial"
    set -- -oAPT::Architecture=amd64 -oAPT::Architectures=amd64 "-oDir::State::Lists=$lists"
    apt-get -q "$@" update
    # shellcheck disable=SC2086 # a list of names
    (cd "$FOLDER" && apt-get -q "$@" download $LOADERS)
    rm -r "$lists"
    ls -l "$FOLDER"
    exit
fi

if ! ldconfig -p | grep -q libvulkan.so.1; then
    for package in "$FOLDER"/*.deb; do
        dpkg -x "$package" /
    done
    ldconfig
fi
DRIVER=/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json
if [ -z "${VK_DRIVER_FILES:-}" ] && [ -e "$DRIVER" ]; then
    export VK_DRIVER_FILES="$DRIVER"
fi
exec python3 -u tests/device/h200.py --binary "${PAGELM:-$FOLDER/pagelm}" --out "${OUT:-$FOLDER}/h200.json"
