"""More programs against a wall: limits, signals and timers, what stays running; as in `matrix_reach`."""

from __future__ import annotations

from attacks import TIGHT, Attack, Seen, above, after, killed_in_time, processes, total_memory
from matrix_reach import attempt, held_in_output

_DAEMON = """
def stay(prepare):
    def start():
        os.setsid()
        if os.fork() == 0:
            prepare()
            os.execv("/bin/sleep", ["sleep", G["nap"]])
        os._exit(0)
    children(1, start)
    time.sleep(0.2)
"""


def daemon(name: str, program: str) -> Attack:
    return Attack(name, _DAEMON + program + "\nsay(tried=True)\n", after("daemons", "it is alive"))


def endless(name: str, program: str, *, control: bool = True) -> Attack:
    return Attack(name, "say(tried=True)\n" + program, killed_in_time, seconds=0.4, control=control)


def kernel_memory(seen: Seen) -> float:
    return max(total_memory(seen), seen.limits.memory_mb)


LIMITS = [
    attempt(
        "higher limits",
        """
import resource
did = False
for name in [name for name in dir(resource) if name.startswith("RLIMIT_")]:
    which = getattr(resource, name)
    soft, hard = resource.getrlimit(which)
    if hard != resource.RLIM_INFINITY:
        for more in (resource.RLIM_INFINITY, hard + 1):
            did = did or tries(lambda: resource.setrlimit(which, (more, more)))""",
        control=False,
    ),
    attempt(
        "limits of the process above it",
        """
import resource
did = tries(lambda: resource.prlimit(os.getppid() or 1, resource.RLIMIT_NOFILE) and None)""",
    ),
    Attack(
        "processes that are spawned, not forked",
        """
pids = []
for _ in range(100):
    try:
        pids.append(os.posix_spawn("/bin/sleep", ["sleep", "20"], {}))
    except OSError:
        break
time.sleep(0.1)
pids = alive(pids)
say(count=len(pids), tried=True)
end(pids)
""",
        above("count", processes, "processes"),
    ),
    Attack(
        "processes and threads together",
        """
import threading
threading.stack_size(65536)
read, write = os.pipe()
def fill():
    for _ in range(40):
        try:
            threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
        except RuntimeError:
            break
        os.write(write, b"x")
    time.sleep(20)
pids = children(5, fill)
time.sleep(0.5)
os.write(write, b"y")
say(count=len(os.read(read, 65536)) - 1 + len(alive(pids)), tried=True)
end(pids)
""",
        above("count", processes, "processes and threads"),
    ),
    Attack(
        "memory in a mapping that forks share",
        """
import mmap
try:
    shared = mmap.mmap(-1, 128 << 20)
    for at in range(0, len(shared), 4096):
        shared[at] = 1
    had = 128
except (OSError, MemoryError):
    had = 0
say(had=had, tried=True)
""",
        above("had", lambda seen: TIGHT.memory_mb * 1.1, "MiB"),
    ),
    Attack(
        "memory in a file that is mapped",
        """
import mmap
had = 0
try:
    with open("mapped", "w+b") as file:
        file.truncate(30 << 20)
        mapped = mmap.mmap(file.fileno(), 0)
        say(had=0, tried=True)
        for at in range(0, len(mapped), 1 << 20):
            mapped[at : at + 4096] = bytes(4096)
        had = 30
except (OSError, MemoryError, ValueError):
    pass
say(had=had, tried=True)
""",
        above("had", lambda seen: TIGHT.disk_mb, "MiB"),
    ),
    attempt("larger pipes", "import fcntl\ndid = tries(lambda: fcntl.fcntl(os.pipe()[1], 1031, 1 << 20))"),
    Attack(
        "memory of the kernel in pipes",
        """
held, pipes = 0, []
try:
    while True:
        pipes.append(os.pipe())
        os.set_blocking(pipes[-1][1], False)
        try:
            while True:
                held += os.write(pipes[-1][1], bytes(65536))
        except BlockingIOError:
            pass
except (OSError, MemoryError):
    pass
say(mb=held / (1 << 20), tried=True)
""",
        above("mb", kernel_memory, "MiB"),
        control=False,
    ),
    Attack(
        "memory of the kernel in sockets",
        """
held, pairs = 0, []
try:
    while True:
        for end_ in (pair := socket.socketpair()):
            tries(lambda: end_.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24))
            end_.setblocking(False)
        pairs.append(pair)
        for end_ in pair:
            try:
                while True:
                    held += end_.send(bytes(32768))
            except BlockingIOError:
                pass
        say(mb=held / (1 << 20), tried=True)
except (OSError, MemoryError):
    pass
say(mb=held / (1 << 20), tried=True)
""",
        above("mb", kernel_memory, "MiB"),
        control=False,
        seconds=10.0,
    ),
    Attack(
        "open files that are on their way",
        """
import array
sent = 0
try:
    for _ in range(60):
        left, right = socket.socketpair()
        left.setblocking(False)
        for _ in range(20):
            files = [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]
            left.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
            sent += 50
            for file in files:
                os.close(file)
except OSError:
    pass
say(sent=sent, tried=True)
""",
        above("sent", lambda seen: 512, "files"),
        control=False,
    ),
    Attack(
        "space that is set aside",
        """
did = 0
for mb in range(1, 60):
    with open("aside", "wb") as file:
        if tries(lambda: os.posix_fallocate(file.fileno(), 0, mb << 20)):
            did = mb
os.unlink("aside")
say(mb=did, tried=True)
""",
        above("mb", lambda seen: TIGHT.disk_mb, "MiB"),
    ),
    Attack(
        "open files",
        """
count = 0
while count < 2000 and tries(lambda: os.open("/dev/null", os.O_RDONLY)):
    count += 1
say(count=count, tried=True)
""",
        above("count", lambda seen: seen.limits.open_files, "files"),
        control=False,
    ),
    Attack(
        "timers and signals that wait",
        """
count = 0
libc.timer_create.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
while count < 5000 and libc.timer_create(1, None, ctypes.byref(ctypes.c_void_p())) == 0:
    count += 1
signal.pthread_sigmask(signal.SIG_BLOCK, {40})
while count < 10000 and libc.sigqueue(os.getpid(), 40, None) == 0:
    count += 1
say(count=count, tried=True)
""",
        above("count", lambda seen: 256, "of them"),
        control=False,
    ),
    Attack(
        "the first process of its container, by many small ones",
        """
def write():
    tries(lambda: open("/proc/self/oom_score_adj", "w").write("0") and None)
for folder in (".", os.environ["TMPDIR"], "/dev/shm"):
    for at in range(8):
        tries(lambda: open(f"{folder}/fill{at}", "wb", 0).write(bytes(1 << 20)) and None)
say(tried=True)
shell = "x=$(head -c 3000000 /dev/zero | tr '\\\\0' a); sleep 1"
def small():
    write()
    os.execv("/bin/bash", ["bash", "-c", shell])
children(14, small)
write()
os.execv("/bin/sleep", ["sleep", "1"])
""",
        lambda seen: "",
        control=False,
    ),  # a fault is a breach; the end of its own run is not
]


SIGNALS = [
    endless("a program that stops itself", "os.kill(os.getpid(), signal.SIGSTOP)\n", control=False),
    endless(
        "work in one call that no signal interrupts",
        """
import re
re.match("(a+)+$", "a" * (60 if G["floods"] else 22) + "b")
""",
    ),
    endless(
        "work that hears of no limit",
        """
signal.signal(signal.SIGXCPU, signal.SIG_IGN)
signal.setitimer(signal.ITIMER_REAL, 0)
stop = time.time() + G["long"]
while time.time() < stop:
    sum(range(10000))
""",
    ),
    endless(
        "a storm of its own timer",
        """
signal.signal(signal.SIGALRM, lambda *given: None)
signal.setitimer(signal.ITIMER_REAL, 0.0001, 0.0001)
stop = time.time() + G["long"]
while time.time() < stop:
    pass
""",
    ),
    endless(
        "a wait for a pipe that nobody writes",
        """
read, write = os.pipe()
import select
select.select([read], [], [], G["long"])
""",
    ),
    daemon(
        "a daemon that hears no signal",
        """
stay(lambda: [tries(lambda: signal.signal(number, signal.SIG_IGN) and None) for number in range(1, 65)])""",
    ),
    daemon(
        "a daemon that is stopped",
        """
def stopped():
    pid = os.getpid()
    if os.fork() == 0:
        time.sleep(0.1)
        os.kill(pid, signal.SIGSTOP)
        os._exit(0)
stay(stopped)""",
    ),
    daemon(
        "a daemon in a group and session of its own",
        """
stay(lambda: (os.setpgid(0, 0) if os.getpgrp() != os.getpid() else None))""",
    ),
    Attack(
        "a signal by way of its output",
        """
import fcntl
did = False
for fd in (0, 1, 2):
    for pid in (os.getppid(), 1):
        tries(lambda: fcntl.fcntl(fd, fcntl.F_SETOWN, pid) and None)
        tries(lambda: fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL) and None)
        tries(lambda: fcntl.fcntl(fd, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK) and None)
        print("x" * 100, flush=True)
say(tried=True)
time.sleep(0.05)
""",
        held_in_output,
        control=False,
    ),
    Attack(
        "streams that are closed, turned and left full",
        """
import fcntl
say(tried=True)
os.close(0)
os.dup2(1, 0)
fcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK)
tries(lambda: open("/proc/self/fd/1", "rb", 0).close())
tries(lambda: os.write(1, b"x" * 15000) and None)
os.closerange(0, 64)
""",
        held_in_output,
        control=False,
    ),
]
