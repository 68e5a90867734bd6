"""Follows a page as a reader does, in a new folder.

    tutorial.py [PAGE EXAMPLES [HOME]]     docs/tutorial.md examples/template unless others are named

Writes each block behind "File `NAME`:" to that file, and runs each line that begins with `$ `. The lines below a command have to be in
its output, in their order; `...` stands for anything. At the end the files have to be those of EXAMPLES: of the first of its folders,
separated by `:`, that has a file of the name. `$HOME` is HOME in commands.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"(?:File `([^`]+)`:\n\n)?```(\w+)\n(.*?)```\n", re.S)


def first_missing(lines, output):
    """Returns the first of the lines that does not come behind those before it in the output; None if all do."""
    at = 0
    for line in lines:
        for part in filter(None, line.split("...")):
            found = output.find(part, at)
            if found < 0:
                return line
            at = found + len(part)
    return None


def main(page="docs/tutorial.md", examples="examples/template", home=None):
    program, files = None, {}
    environment = {**os.environ, "HOME": home} if home else None
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(ROOT, pathlib.Path(folder, "warpbell"))
        at = pathlib.Path(folder)
        for name, language, text in BLOCK.findall((ROOT / page).read_text()):
            if name:
                (at / name).parent.mkdir(parents=True, exist_ok=True)
                (at / name).write_text(text)
                files[name] = text
            if language != "console":
                continue
            for command in re.split(r"^\$ ", text, flags=re.M)[1:]:
                command, *lines = command.rstrip("\n").split("\n")
                print(f"$ {command}", flush=True)
                if command.startswith("cd "):
                    at = at / command.removeprefix("cd ")
                    continue
                done = subprocess.run(["bash", "-c", command], cwd=at, env=environment, capture_output=True, text=True, timeout=900)
                output = done.stderr + done.stdout
                if done.returncode != 0:
                    sys.exit(f"{output}tutorial: `{command}` failed with status {done.returncode}")
                missing = first_missing(lines, output)
                if missing is not None:
                    sys.exit(f"{output}tutorial: `{command}` does not print `{missing}`, as {page} shows")
                program = at
    if program is None or not files:
        sys.exit("tutorial: no command and no file found")
    for name, text in files.items():
        found = next(filter(pathlib.Path.is_file, (ROOT / folder / name for folder in examples.split(":"))), None)
        if found is None or found.read_text() != text:
            sys.exit(f"tutorial: {name} of {examples} is not the file of {page}")
    print(f"tutorial: {len(files)} files, as in {examples}")


main(*sys.argv[1:])
