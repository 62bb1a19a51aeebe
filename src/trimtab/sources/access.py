"""How to be let in to a server: who we are, which tenant, which certificates we trust."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trimtab.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach a server: who we are, which tenant, which certificates we trust."""

    bearer: str | None = field(default=None, repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tenant: str | None = None
    """Sent as X-Scope-OrgID, as Mimir and Thanos' receivers expect it."""
    ca_file: Path | None = None
    insecure: bool = False

    def request_headers(self) -> dict[str, str]:
        """Return the headers that carry the access; raises UsageError where two kinds contradict."""
        headers = dict(self.headers)
        if self.bearer is not None and self.user is not None:
            raise UsageError("give either a bearer token or a user and password, not both")
        if self.bearer is not None:
            headers["Authorization"] = f"Bearer {self.bearer}"
        if self.user is not None:
            pair = base64.b64encode(f"{self.user}:{self.password or ''}".encode()).decode("ascii")
            headers["Authorization"] = f"Basic {pair}"
        if self.tenant is not None:
            headers["X-Scope-OrgID"] = self.tenant
        for name, value in headers.items():
            if not value.isprintable() or not value.isascii():
                raise UsageError(
                    f"the header {name} would hold a line break or another character that no header may hold; "
                    "is the token cut from a file with more lines? give it alone"
                )
        return headers

    def trust(self) -> bool | ssl.SSLContext:
        """Return what httpx is to check certificates against; raises UsageError where the file is missing."""
        if self.insecure:
            return False
        if self.ca_file is not None:
            if not self.ca_file.is_file():
                raise UsageError(f"--ca-file {self.ca_file}: no such file")
            return ssl.create_default_context(cafile=str(self.ca_file))
        return True
