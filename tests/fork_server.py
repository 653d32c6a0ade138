"""A process that has imported torch and JAX, and forks a `ppo-bench` of its own for each command that a page has.

Importing them is most of what a short command takes. A command has its own process, folder, environment, words,
streams and exit code, as if the shell had started it. It is killed when the client is, which the shell starts.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.training import ENVIRONMENT, ROOT

IMPORTS = ("torch", "jax", "flax.linen", "gymnasium", "hydra", "ppo_bench.runners.torch", "ppo_bench.runners.jax")
CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect(sys.argv[1])
    asked = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(server, [asked], [0, 1, 2])
    sys.exit(int(server.recv(16) or 1))
"""


@contextmanager
def fork_server(folder: Path) -> Iterator[str]:
    """The shell's command that is `ppo-bench` as long as the server lives, whose socket is in `folder`."""
    address = str(folder / "fork_server")
    command = [sys.executable, "-m", "tests.fork_server", address]
    # Its streams are pipes, which the streams of commands replace.
    with subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout
            assert server.stdout.readline() == "ready\n"
            yield shlex.join([sys.executable, "-I", "-S", "-c", CLIENT, address])
        finally:
            server.communicate()


def main(address: str) -> None:
    """Fork a process for each client of the socket `address`."""
    for name in IMPORTS:
        importlib.import_module(name)
    gc.freeze()  # or each command would look through all of them as it ends
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
    while 0 not in select.select([listener.fileno(), 0], [], [])[0]:  # until the tests close stdin
        client, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            answer(client)
            break
        client.close()


def answer(client: socket.socket) -> None:
    """Run the command that the client asks for, and tell it the exit code."""
    asked, streams, _, _ = socket.recv_fds(client, 2**20, 3)
    words, folder, environment = json.loads(asked)
    command = os.fork()
    if command:
        process = os.pidfd_open(command)
        if process not in select.select([client.fileno(), process], [], [])[0]:
            os.kill(command, signal.SIGKILL)  # as the client was
        _, status = os.waitpid(command, 0)
        code = os.waitstatus_to_exitcode(status)
        with suppress(BrokenPipeError):
            client.send(str(code if code >= 0 else 128 - code).encode())
        os._exit(0)  # with nothing to clean up
    client.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = words
    from ppo_bench.commands.console import console

    console()


if __name__ == "__main__":
    main(sys.argv[1])
