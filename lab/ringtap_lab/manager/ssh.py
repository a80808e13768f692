# SPDX-License-Identifier: MIT OR Apache-2.0
"""An agent behind SSH, by the library asyncssh."""

from __future__ import annotations

import shlex

import asyncssh

from ringtap_lab.manager.inventory import Host, Ssh
from ringtap_lab.manager.link import BOOT, GRACE_S, PIECE_BYTES, LinkError, Reader


class SshChannel:
    """An agent that a machine's SSH server started for us."""

    def __init__(self, connection: asyncssh.SSHClientConnection, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._connection = connection
        self._process = process
        self.stdout: Reader = process.stdout

    @classmethod
    async def open(cls, host: Host, ssh: Ssh) -> SshChannel:
        """Connects and starts the agent; its code follows on standard input."""
        options: dict[str, object] = {}
        if ssh.key:
            # Only this key: a server must not see other identities of the user.
            options |= {"client_keys": [ssh.key], "agent_path": None}
        if ssh.known_hosts:
            options["known_hosts"] = ssh.known_hosts
        try:
            connection = await asyncssh.connect(
                ssh.address, ssh.port, username=ssh.user, keepalive_interval=2, keepalive_count_max=3, **options
            )
            command = shlex.join([host.python, "-I", "-c", BOOT])
            process = await connection.create_process(command, encoding=None)
        except asyncssh.HostKeyNotVerifiable as error:
            raise LinkError(f"{host.name}: {error}: put the host's key into known_hosts") from None
        except asyncssh.PermissionDenied as error:
            raise LinkError(f"{host.name}: {error}: does {ssh.user} accept this key there?") from None
        except asyncssh.Error as error:
            raise LinkError(f"{host.name}: {error}") from None
        return cls(connection, process)

    def send(self, data: bytes) -> None:
        """Sends to the agent."""
        self._process.stdin.write(data)

    async def complaint(self) -> str:
        """What the agent, or the shell that should start it, says on its standard error."""
        text = await self._process.stderr.read(PIECE_BYTES)
        return text.decode(errors="replace").strip()[-600:]

    async def close(self) -> None:
        """Ends the agent by the end of its input, and then the connection."""
        try:
            self._process.stdin.write_eof()
            await self._process.wait(timeout=GRACE_S)
        except (OSError, asyncssh.Error, TimeoutError):
            pass  # the end of the connection ends the agent as well
        self._connection.close()
        await self._connection.wait_closed()
