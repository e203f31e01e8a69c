"""Prints how large the built page's wasm files are as a server sends them, and fails above the limits.

    python3 tests/page/sizes.py DIST
"""

import gzip
import pathlib
import sys

# Megabytes (10⁶ bytes) after gzip -9. The page is a chat with branches, a laboratory, a benchmark and a library: 1.07 when the last of
# them came; the service worker keeps it, so that it is sent once a version.
LIMITS = {"engine": 3.0, "app": 1.2}


def main():
    folder = pathlib.Path(sys.argv[1])
    too_large = []
    for name, limit in LIMITS.items():
        # Trunk puts a hash into the page's name, and none into the worker's.
        files = [path for path in folder.glob("*_bg.wasm") if path.name.removesuffix("_bg.wasm").split("-")[0] == name]
        if len(files) != 1:
            sys.exit(f"{folder} has {len(files)} files {name}*_bg.wasm where one was expected; build the page first, into an empty folder")
        data = files[0].read_bytes()
        size = len(gzip.compress(data, compresslevel=9, mtime=0)) / 1e6
        print(f"{files[0].name}: {len(data) / 1e6:.2f} MB, {size:.3f} MB gzipped, at most {limit:.1f} MB")
        if size > limit:
            too_large.append(name)
    if too_large:
        sys.exit(f"too large: {', '.join(too_large)}; look for what came in with `twiggy top` or `cargo bloat`, or raise no limit without a reason")


if __name__ == "__main__":
    main()
