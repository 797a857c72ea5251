"""Credentials from a program (client.authentication.k8s.io, v1 and v1beta1).

Rules:
- The program runs without a shell and with a time limit.
- The program inherits standard input only if standard input is a terminal.
- Standard output contains the credential, so it is never printed or logged.
- Standard error goes to the user, because it contains prompts and errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from datum_compute.api.errors import Unauthorized
from datum_compute.api.meta.codec import DecodeError, decode, encode
from datum_compute.client.auth.connection import ExecSignIn, validate_token
from datum_compute.client.auth.credentials import AuthEnvironment, Credential
from datum_compute.client.auth.kubeconfig_files import KubeconfigError
from datum_compute.client.transport.tls import Certificate

UNATTENDED_LIMIT_S = 60.0
INTERACTIVE_LIMIT_S = 300.0  # the user may have to sign in with a browser


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    sign_in: ExecSignIn
    environment: AuthEnvironment

    async def obtain(self) -> tuple[Credential, float | None]:
        """Return a credential, and its expiry if the program prints one."""
        interactive = self._interactive()
        output = await self._run(interactive)
        status = self._status(output)
        return self._credential(status), self._expiry(status)

    def _interactive(self) -> bool:
        mode = self.sign_in.interactive_mode
        if mode == "Always" and not self.environment.is_terminal:
            raise self._sign_in_error(
                "interactiveMode is Always, but standard input is not a terminal"
            )
        return mode != "Never" and self.environment.is_terminal

    async def _run(self, interactive: bool) -> bytes:
        limit_s = INTERACTIVE_LIMIT_S if interactive else UNATTENDED_LIMIT_S
        try:
            process = await asyncio.create_subprocess_exec(
                self.sign_in.command,
                *self.sign_in.arguments,
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                env=self._program_environment(interactive),
            )
        except OSError as error:
            why = f"cannot run the program: {error.strerror}"
            raise self._sign_in_error(why, self.sign_in.install_hint) from None
        try:
            async with asyncio.timeout(limit_s):
                output, _ = await process.communicate()
        except TimeoutError:
            raise self._sign_in_error(f"the program did not exit within {limit_s:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            raise self._sign_in_error(f"exit code {process.returncode}")
        return output

    def _program_environment(self, interactive: bool) -> Mapping[str, str]:
        spec: dict[str, Any] = {"interactive": interactive}
        if self.sign_in.cluster is not None:
            spec["cluster"] = self.sign_in.cluster
        info = {"apiVersion": self.sign_in.api_version, "kind": "ExecCredential", "spec": spec}
        return {
            **self.environment.environ,
            **dict(self.sign_in.environment),
            "KUBERNETES_EXEC_INFO": encode(info).decode(),
        }

    def _status(self, output: bytes) -> Mapping[str, Any]:
        try:
            answer = decode(output)
        except DecodeError:
            raise self._sign_in_error("the output is not JSON") from None
        if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
            raise self._sign_in_error("the output is not an ExecCredential")
        if answer.get("apiVersion") != self.sign_in.api_version:
            raise self._sign_in_error(
                f"the apiVersion of the output is not {self.sign_in.api_version}"
            )
        status = answer.get("status")
        if not isinstance(status, dict):
            raise self._sign_in_error("the ExecCredential has no status")
        return status

    def _credential(self, status: Mapping[str, Any]) -> Credential:
        token = status.get("token")
        certificate = status.get("clientCertificateData")
        key = status.get("clientKeyData")
        if bool(certificate) != bool(key):
            raise self._sign_in_error("the ExecCredential has only one of certificate and key")
        if not token and not certificate:
            raise self._sign_in_error("the ExecCredential has neither a token nor a certificate")
        try:
            checked = validate_token(str(token), "the token") if token else ""
        except KubeconfigError as error:
            raise self._sign_in_error(str(error)) from None
        pair = Certificate(str(certificate).encode(), str(key).encode()) if key else None
        return Credential(checked, pair)

    def _expiry(self, status: Mapping[str, Any]) -> float | None:
        moment = status.get("expirationTimestamp")
        if not moment:
            return None
        try:
            parsed = datetime.fromisoformat(str(moment))
        except ValueError:
            raise self._sign_in_error("the expirationTimestamp is not a time") from None
        if parsed.tzinfo is None:
            raise self._sign_in_error("the expirationTimestamp has no time zone")
        return parsed.timestamp()

    def _sign_in_error(self, why: str, hint: str = "") -> Unauthorized:
        """Return the error. It omits arguments and environment, which may contain secrets."""
        suffix = f" {hint}" if hint else ""
        return Unauthorized(
            f"cannot sign in with the plugin {self.sign_in.command}: {why}.{suffix}"
        )
