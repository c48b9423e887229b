"""Cases of the definition corpus: folders under tests/definitions, made real in a temporary repository.

`valid` has agents of every form, `changed` one of them with a setting that is another, `invalid` all that is wrong.
A case is a folder with the agent itself (`.agent/<name>/…`), or a `case.yaml`:
  base    the valid case whose agent is copied
  edits   lists of [file, set, pointer, value] or [file, remove, pointer], on JSON files of the agent
  write, write_hex, pad, link, delete   files of the agent made, grown to a size, linked or removed; `../../` leads
          to the root of the repository
  agent, options   what is loaded (default demo), and with which options
  arguments, issue   arguments of a run and its issue: the problems are then those of the arguments
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

#: The one in C takes a tenth of the time.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEFINITIONS = Path(__file__).parent.parent / "definitions"


@dataclass(frozen=True, kw_only=True)
class Case:
    folder: Path
    data: dict

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def agent(self) -> str:
        return self.data.get("agent", "demo")

    @property
    def options(self) -> dict:
        return self.data.get("options", {})

    def build(self, root: Path) -> Path:
        """Make the case's repository under `root` and give its folder."""
        base = self.data.get("base")
        source = DEFINITIONS / "valid" / base if base else self.folder
        if (source / ".agent").exists():
            shutil.copytree(source / ".agent", root / ".agent")
        folder = root / ".agent" / self.data.get("folder", "demo")
        for file, *edit in self.data.get("edits", []):
            edit_json(folder / file, *edit)
        self._write_files(folder)
        return root

    def _write_files(self, folder: Path) -> None:
        for path, text in self.data.get("write", {}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        for path, text in self.data.get("write_hex", {}).items():
            (folder / path).write_bytes(bytes.fromhex(text))
        for path, size in self.data.get("pad", {}).items():
            file = folder / path
            file.write_text(file.read_text(encoding="utf-8").ljust(size), encoding="utf-8")
        for path in self.data.get("delete", []):
            gone = folder / path
            shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
        for path, target in self.data.get("link", {}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).symlink_to(target)


@cache
def cases(kind: str) -> list[Case]:
    """All cases of a kind: every folder below tests/definitions/<kind>."""
    folders = sorted(path for path in (DEFINITIONS / kind).iterdir() if path.is_dir())
    return [Case(folder=folder, data=_read(folder)) for folder in folders]


def _read(folder: Path) -> dict:
    file = folder / "case.yaml"
    return yaml.load(file.read_text(encoding="utf-8"), Loader=LOADER) if file.exists() else {}


def edit_json(file: Path, word: str, pointer: str, *value: object) -> None:
    """Set or remove the value at a JSON Pointer, and write the file as all cases are written: indented by two."""
    document = json.loads(file.read_text(encoding="utf-8"))
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    node = document
    for key in parents:
        node = node[int(key) if isinstance(node, list) else key]
    last = int(last) if isinstance(node, list) else last
    if word == "set":
        node[last] = value[0]
    else:
        del node[last]
    file.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
