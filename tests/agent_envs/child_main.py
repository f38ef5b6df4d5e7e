"""What the tests of `agent_envs.isolation.child` run as a child: it does what it is told."""

import os
import socket
import subprocess
import sys
import time

from agent_envs.isolation.child import connect


def main() -> None:
    channel = connect()
    while True:
        try:
            order, *rest = channel.recv_bytes().split(b" ", 1)
        except EOFError:
            return
        match order:
            case b"echo":
                channel.send_bytes(rest[0])
            case b"print":
                os.write(1, rest[0])
                channel.send_bytes(b"")
            case b"flood":
                while True:
                    os.write(2, b"x" * 65536)
            case b"path":
                channel.send_bytes("\n".join([str(os.environ.get("PYTHONPATH")), *sys.path]).encode())
            case b"variables":
                channel.send_bytes("\n".join(os.environ).encode())
            case b"leave":  # a child of its own that holds the connection, and an end
                number = channel._socket.fileno()
                left = subprocess.Popen(["sleep", "1000"], pass_fds=(number,))
                channel.send_bytes(str(left.pid).encode())
                os._exit(7)
            case b"half":  # a message of 100 bytes of which 10 come
                raw = socket.socket(fileno=os.dup(channel._socket.fileno()))
                raw.send((100).to_bytes(8, "big") + b"0123456789")
                time.sleep(float(rest[0]))
                raw.send(b"x" * 90)


if __name__ == "__main__":
    main()
