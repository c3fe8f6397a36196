#!/usr/bin/python3
"""image.py ROOT NAME ARCHIVE [DOCKERFILE]: writes a directory as an image of one layer, in the format of `docker save`.

With DOCKERFILE, user, environment and entry point are those of its stages. Without, the entry point is /pause."""

import hashlib
import io
import json
import platform
import re
import sys
import tarfile
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def main(root, name, archive, dockerfile=None):
    config = {"Entrypoint": ["/pause"]}
    if dockerfile:
        text = Path(dockerfile).read_text()
        config = {"User": re.search(r"^USER (\S+)$", text, re.M)[1],
                  "Env": ["PATH=/usr/bin", re.search(r"^ENV (POSENC_SERVER_LISTEN=\S+)$", text, re.M)[1]],
                  "Entrypoint": json.loads(re.search(r"^ENTRYPOINT (\[.*\])$", text, re.M)[1])}

    def owned_by_root(member):
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = "root"
        return member

    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(root, arcname=".", filter=owned_by_root)
    layer = layer.getvalue()
    layers = {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}
    image = json.dumps({"architecture": ARCHITECTURES[platform.machine()], "os": "linux", "config": config,
                        "rootfs": layers}).encode()
    image_name = hashlib.sha256(image).hexdigest() + ".json"
    manifest = json.dumps([{"Config": image_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as tar:
        for path, content in ((image_name, image), ("layer.tar", layer), ("manifest.json", manifest)):
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


main(*sys.argv[1:])
