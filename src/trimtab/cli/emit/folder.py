"""The folder that `trimtab emit` writes: at once or not at all, and never over what somebody else wrote or changed there.

A listing in it names the files of the last emit with their digests. A file that is there and not in the listing is somebody
else's; one whose digest is another was changed by hand. The new folder is made beside the old one and takes its place whole,
so that a run which is cut off leaves the old one.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

from trimtab.errors import UsageError
from trimtab.inputs.files import read_text
from trimtab.tables.whole_folder import replaced_whole

LISTING = ".trimtab-files"
"""Names the files that emit wrote to a folder, each behind its digest."""
_SHOWN = 10


def write_folder(out: Path, files: Mapping[str, str], *, force: bool = False) -> None:
    """Write files by path, and take away those of an earlier emit that are no longer among them; nothing else is touched.

    Raises UsageError where files of others or files changed by hand would be lost (unless `force`), where the folder leads
    elsewhere by a link, or cannot be written.
    """
    out = out.resolve()
    try:
        earlier = _listed(out)
        stale = [path for path in earlier if path not in files and _is_inside(out, path)]
        if not force:
            _refuse_to_lose(out, files, stale, earlier)
        _refuse_links(out, files)
        with replaced_whole(out) as fresh:
            _fill(fresh, out, files, stale)
    except OSError as error:
        raise UsageError(f"cannot write to {out}: {error}") from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _listed(out: Path) -> dict[str, str]:
    """Return the files of the last emit with their digests; those of 0.1.0 are listed without (empty)."""
    listing = out / LISTING
    if not listing.is_file():
        return {}
    lines = [line.rpartition("  ") for line in read_text(listing).splitlines() if line]
    return {path: digest for digest, _, path in lines}


def _is_inside(out: Path, path: str) -> bool:
    try:
        return (out / path).resolve().is_relative_to(out)
    except ValueError:  # a damaged listing: no file is called so
        return False


def _refuse_to_lose(out: Path, files: Mapping[str, str], stale: list[str], earlier: Mapping[str, str]) -> None:
    """Raise UsageError, with every file, where somebody else's file or one changed by hand would be lost."""
    lost = []
    for path in [*files, *stale]:
        there = out / path
        if not there.is_file():
            continue
        found = _digest(there.read_bytes())
        wanted = files.get(path)
        if wanted is not None and found == _digest(wanted.encode()):
            continue
        if path not in earlier:
            lost.append(f"{path} (not written by emit)")
        elif earlier[path] and found != earlier[path]:
            lost.append(f"{path} (changed by hand)")
    if lost:
        more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        raise UsageError(
            f"{out}: {', '.join(lost[:_SHOWN])}{more} would be lost; move them, choose another --out, or say --force"
        )


def _refuse_links(out: Path, files: Mapping[str, str]) -> None:
    """Raise UsageError where a file of ours would be written through a link to a place outside."""
    for path in files:
        if not _is_inside(out, path):
            raise UsageError(
                f"{out / path} leads out of the folder by a link: take the link away, or choose another --out"
            )


def _fill(fresh: Path, out: Path, files: Mapping[str, str], stale: list[str]) -> None:
    """Fill the new folder: what others have in the old one, then our files, then their listing."""
    if out.is_dir():
        shutil.copytree(out, fresh, symlinks=True, dirs_exist_ok=True)
    for path in stale:
        (fresh / path).unlink(missing_ok=True)
        _prune(fresh / path, fresh)
    for path, text in files.items():
        place = fresh / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    lines = [f"{_digest(text.encode())}  {path}" for path, text in files.items()]
    (fresh / LISTING).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _prune(gone: Path, root: Path) -> None:
    """Take away the folders that a file left empty."""
    folder = gone.parent
    while folder != root and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
