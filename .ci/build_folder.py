"""Reads cargo's JSON messages and prints the folder that a package's build script wrote to.

    cargo check --message-format=json | python3 .ci/build_folder.py warpbell
"""

import json
import sys

package = sys.argv[1]
folders = []
for line in sys.stdin:
    message = json.loads(line)
    # package_id is `path+file:///where/package#version` or `registry+...#package@version`.
    words = message.get("package_id", "").replace("#", "/").replace("@", "/").split("/")
    if message["reason"] == "build-script-executed" and package in words:
        folders.append(message["out_dir"])
if not folders:
    sys.exit(f"cargo ran no build script of {package}")
print(folders[-1])
