"""A disk that forgets: after a power cut only what was flushed is certain, of the rest any part may have arrived, in any order.

POSIX's weakest reading is taken: flushing a file says nothing about its name, and names become durable only by
flushing their folder. Every write and every change of a folder since its last flush survives or not by the toss of a
coin; a rename survives whole or not at all.
"""

from dataclasses import dataclass, field

from trimtab_runtime.checkpoint.files import FileOperations


@dataclass
class File:
    durable: bytes = b""
    pending: list = field(default_factory=list)

    def after_power_cut(self, rng):
        content = bytearray(self.durable)
        for offset, data in self.pending:
            if rng.random() < 0.5:
                content.extend(bytes(max(0, offset + len(data) - len(content))))
                content[offset : offset + len(data)] = data
        return bytes(content)

    def flush(self):
        for offset, data in self.pending:
            content = bytearray(self.durable)
            content.extend(bytes(max(0, offset + len(data) - len(content))))
            content[offset : offset + len(data)] = data
            self.durable = bytes(content)
        self.pending.clear()


@dataclass
class Folder:
    live: dict = field(default_factory=dict)
    durable: dict = field(default_factory=dict)
    pending: list = field(default_factory=list)

    def change(self, operation):
        _apply(self.live, operation)
        self.pending.append(operation)

    def after_power_cut(self, rng):
        entries = dict(self.durable)
        for operation in self.pending:
            if rng.random() < 0.5:
                _apply(entries, operation)
        return entries

    def flush(self):
        self.durable = dict(self.live)
        self.pending.clear()


def _apply(entries, operation):
    match operation:
        case ("add", name, node):
            entries[name] = node
        case ("remove", name):
            entries.pop(name, None)
        case ("move", old, new):
            if old in entries:
                entries[new] = entries.pop(old)


class ForgetfulFiles(FileOperations):
    """Works on a real folder, and keeps beside it what a power cut would leave."""

    def __init__(self, root, after_each):
        self.root = root
        self.top = Folder()
        self._open = {}
        self._after_each = after_each

    def _node(self, path):
        node = self.top
        for part in path.relative_to(self.root).parts:
            node = node.live[part]
        return node

    def make_folder(self, path):
        super().make_folder(path)
        parent = self._node(path.parent) if path != self.root else None
        if parent is not None and path.name not in parent.live:
            parent.change(("add", path.name, Folder()))
        self._after_each()

    def create(self, path, *, direct):
        descriptor = super().create(path, direct=direct)
        node = File()
        self._node(path.parent).change(("add", path.name, node))
        self._open[descriptor] = node
        self._after_each()
        return descriptor

    def write_at(self, descriptor, data, offset):
        written = super().write_at(descriptor, data, offset)
        self._open[descriptor].pending.append((offset, bytes(data[:written])))
        self._after_each()
        return written

    def flush(self, descriptor):
        super().flush(descriptor)
        self._open[descriptor].flush()
        self._after_each()

    def open_for_reading(self, path):
        descriptor = super().open_for_reading(path)
        self._open[descriptor] = self._node(path)
        return descriptor

    def rename(self, source, target):
        super().rename(source, target)
        assert source.parent == target.parent
        self._node(source.parent).change(("move", source.name, target.name))
        self._after_each()

    def remove_file(self, path):
        super().remove_file(path)
        self._node(path.parent).change(("remove", path.name))
        self._after_each()

    def remove_folder(self, path):
        super().remove_folder(path)
        self._node(path.parent).change(("remove", path.name))
        self._after_each()

    def write_what_is_left(self, target, rng):
        """Write one possible state of the disk after a power cut at this moment."""
        self._write(self.top, target, rng)

    def _write(self, folder, target, rng):
        target.mkdir()
        for name, node in folder.after_power_cut(rng).items():
            if isinstance(node, Folder):
                self._write(node, target / name, rng)
            else:
                (target / name).write_bytes(node.after_power_cut(rng))
