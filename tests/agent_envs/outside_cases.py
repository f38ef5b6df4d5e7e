"""What the tests of `isolation.grader` call: a function that does what it is told, and one that cannot be had."""

import os
import signal
import socket
import subprocess
import time
from typing import Any

CALLS = 0


def obey(order: str, argument: Any = None) -> Any:
    """What an outside library might do with a hostile text."""
    global CALLS
    CALLS += 1
    match order:
        case "echo":
            return argument
        case "calls":
            return CALLS
        case "pid":
            return os.getpid()
        case "power":
            return len(str(9**9**9 % 10))
        case "sleep":
            time.sleep(1000)
        case "raise":
            raise ValueError(f"first line\nsecond {argument}")
        case "fill":
            return bytearray(argument * 2**20) and "filled"
        case "recurse":
            return obey("recurse")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "quit":
            os._exit(7)
        case "flood":
            return "x" * argument
        case "nan":
            return float("nan")
        case "write":
            with open(argument, "w") as file:
                file.write("x")
        case "read":
            with open(argument) as file:
                return file.read(5)
        case "run":
            subprocess.run(["touch", argument], check=True)
        case "system":
            os.system(f"touch {argument}")
        case "remove":
            os.remove(argument)
        case "connect":
            socket.create_connection(("127.0.0.1", argument)).close()
        case "eval":
            return eval(argument)
    return None
