"""What a request must have before it is looked at: the secret, our address, our own page."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from typing import Any

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    ("Content-Security-Policy", POLICY),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
]


class Gate:
    """A WSGI application in front of another: `/SECRET/x` is `/x` there, all else is refused."""

    def __init__(self, inner: Application, secret: str, port: int) -> None:
        self._inner = inner
        self._secret = secret.encode()
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Pass a request on, or answer it with 403."""
        secret, slash, rest = environ.get("PATH_INFO", "").removeprefix("/").partition("/")
        if not self._may_enter(environ, secret) or not slash:
            start_response("403 Forbidden", [*HEADERS, ("Content-Type", "text/plain")])
            return [b"The address that `bluebridge web` printed has a secret; this one has not.\n"]
        environ["PATH_INFO"] = f"/{rest}"

        def with_headers(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start_response(status, [*headers, *HEADERS], *more)

        return self._inner(environ, with_headers)

    def _may_enter(self, environ: Environ, secret: str) -> bool:
        """Whether it names us as host, comes from no other page and knows the secret."""
        origin = environ.get("HTTP_ORIGIN")
        return (
            environ.get("HTTP_HOST") in self._hosts
            and (origin is None or origin.removeprefix("http://") in self._hosts)
            and hmac.compare_digest(secret.encode(errors="replace"), self._secret)
        )
