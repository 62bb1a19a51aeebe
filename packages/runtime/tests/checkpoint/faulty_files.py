"""File operations that fail, shorten or stop at the call a test chooses."""

from trimtab_runtime.checkpoint.files import FileOperations

OPERATIONS = (
    "make_folder",
    "create",
    "write_at",
    "flush",
    "close",
    "open_for_reading",
    "read_at",
    "size_bytes",
    "rename",
    "names",
    "remove_file",
    "remove_folder",
)


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it reaches the disk, clean-up included."""


class FaultyFiles(FileOperations):
    """Counts its calls and, from the chosen one on, does what `fault` says: an errno to raise, "kill" or "short"."""

    def __init__(self, at_call=None, fault=None, *, once=True):
        self.calls = []
        self.at_call = at_call
        self.fault = fault
        self.once = once

    def _due(self):
        number = len(self.calls) - 1
        if self.at_call is None:
            return False
        return number == self.at_call if self.once and self.fault != "kill" else number >= self.at_call

    def write_at(self, descriptor, data, offset):
        self.calls.append("write_at")
        if self._due():
            if self.fault == "short":
                return super().write_at(descriptor, data[: max(1, len(data) // 3)], offset)
            self._raise("write_at")
        return super().write_at(descriptor, data, offset)

    def _raise(self, operation):
        if self.fault == "kill":
            raise Killed
        if self.fault != "short":
            raise OSError(self.fault, f"injected at {operation}")


def _wrapped(operation):
    real = getattr(FileOperations, operation)

    def method(self, *arguments, **options):
        self.calls.append(operation)
        if self._due():
            if operation == "close":
                real(self, *arguments)
            self._raise(operation)
            if operation == "close":
                return None
        return real(self, *arguments, **options)

    return method


for _operation in OPERATIONS:
    if _operation != "write_at":
        setattr(FaultyFiles, _operation, _wrapped(_operation))
