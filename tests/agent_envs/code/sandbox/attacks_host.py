"""What a program may see and touch of the machine."""

from __future__ import annotations

from attacks import Attack, after, told

_SYSCALLS = {  # numbers on x86_64; what they are asked makes no sense: a refusal must come before anybody looks at it
    "unshare user": (272, 0x10000000),
    "unshare net": (272, 0x40000000),
    "clone into a user namespace": (56, 0x10000000 | 17),
    "clone3": (435, 0, 0),
    "add_key": (248, "user", "name", "data", 4, -3),
    "keyctl": (250, 0, -3, 1),
    "bpf": (321, 0, 0, 0),
    "io_uring_setup": (425, 1, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "userfaultfd": (323, 0),
    "mount": (165, "none", "/tmp", "tmpfs", 0, 0),
    "pivot_root": (155, ".", "."),
    "chroot": (161, "."),
    "setns": (308, 0, 0),
    "process_vm_readv": (310, 1, 0, 0, 0, 0, 0),
    "open_by_handle_at": (304, 0, 0, 0),
    "memfd_create": (319, "name", 0),
    "shmget": (29, 0, 4096, 0o1600),
    "setdomainname": (171, "name", 4),
    "x32 getpid": (0x40000000 + 39,),
    "kexec_load": (246, 0, 0, 0, 0),
    "ptrace itself": (101, 0, 0, 0, 0),
}

_HARMLESS = ("unshare user", "clone into a user namespace", "memfd_create", "process_vm_readv", "io_uring_setup")
"""Those that may be let through to a machine, whoever asks."""

HOST = [
    Attack(
        "read a file of the host",
        """
paths = (G["file"], "/proc/1/root" + G["file"], "/proc/self/root/.." + G["file"])
say(read=any(tries(lambda: G["secret"] in open(path, errors="replace").read()) for path in paths))
""",
        told("read", "the secret was read"),
    ),
    Attack(
        "list a folder of the host",
        "say(found=tries(lambda: G['name'] in os.listdir(os.path.dirname(G['file']))))\n",
        told("found", "the folder was listed"),
    ),
    Attack(
        "write outside",
        """
tries(lambda: open(G["file"], "a").write("changed"))
tries(lambda: open(G["target"], "w").write("made"))
tries(lambda: os.chmod(G["file"], 0o777))
tries(lambda: os.rename(G["file"], G["file"] + "2"))
say(core=tries(lambda: open("/proc/sys/kernel/core_pattern", "r+").close()))
""",
        lambda seen: "core_pattern can be written" if seen.said["core"] else after("changed", "a file changed")(seen),
    ),
    Attack(
        "connect over TCP",
        "say(there=tries(lambda: socket.create_connection(('127.0.0.1', G['tcp']), 1).close()))\n",
        told("there", "connected"),
    ),
    Attack(
        "send over UDP",
        """
def send():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", G["udp"]))
say(sent=tries(send))
time.sleep(0.05)
""",
        after("datagram", "a datagram arrived"),
    ),
    Attack(
        "a socket with a path",
        "say(there=tries(lambda: socket.socket(socket.AF_UNIX).connect(G['path'])))\n",
        told("there", "connected"),
    ),
    Attack(
        "an abstract socket",
        "say(there=tries(lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + G['abstract'])))\n",
        told("there", "connected"),
    ),
    Attack(
        "signal a process of the host",
        """
for number in (signal.SIGTERM, signal.SIGKILL):
    tries(lambda: os.kill(G["victim"], number))
time.sleep(0.05)
say(done=True)
""",
        after("victim_dead", "the process died"),
    ),
    Attack(
        "trace a process of the host",
        """
got = libc.ptrace(16, G["victim"], 0, 0) == 0
if got:
    libc.ptrace(17, G["victim"], 0, 0)
say(traced=got)
""",
        told("traced", "attached"),
    ),
    Attack(
        "change how a process of the host runs",
        """
nicer = tries(lambda: os.setpriority(os.PRIO_PROCESS, G["victim"], 7))
pinned = tries(lambda: os.sched_setaffinity(G["victim"], {0}))
say(did=nicer or pinned)
""",
        told("did", "its priority or processors were set"),
    ),
    Attack(
        "a daemon that stays",
        """
def daemon():
    os.setsid()
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", G["nap"]])
    os._exit(0)
children(1, daemon)
time.sleep(0.2)
say(done=True)
""",
        after("daemons", "it is alive"),
    ),
    Attack(
        "the environment of the host",
        """
found = [os.environ.get("TURNWISE_ATTACK", "")]
for path in ("/proc/self/environ", "/proc/1/environ", f"/proc/{os.getppid()}/environ"):
    tries(lambda: found.append(open(path, "rb").read().decode("latin-1")))
say(found=any(G["secret"] in text for text in found))
""",
        told("found", "a variable of the host was read"),
        control=False,  # unsafe-process gives none away either: a bare process is its control
    ),
    Attack(
        "files that the host holds open",
        """
found = False
for number in range(3, 1024):
    found = found or tries(lambda: G["secret"].encode() in os.pread(number, 4096, 0))
say(found=found)
""",
        told("found", "an open file of the host was read"),
        control=False,
    ),
    Attack(
        "forbidden system calls",
        """
def call(number, *rest):
    ctypes.set_errno(0)
    given = [ctypes.c_char_p(x.encode()) if isinstance(x, str) else ctypes.c_long(x) for x in rest]
    before = os.getpid()
    got = libc.syscall(ctypes.c_long(number), *given)
    if os.getpid() != before:
        os._exit(0)
    return got, ctypes.get_errno()
through = {}
for name, (number, *rest) in G["calls"].items():
    got, number = call(number, *rest)
    if got >= 0 or number not in (errno.EPERM, errno.ENOSYS, errno.EACCES):
        through[name] = (got, number)
say(through=through)
""",
        lambda seen: f"not refused: {seen.said['through']}" if seen.said["through"] else "",
        given={"calls": _SYSCALLS},
        control_given={"calls": {name: _SYSCALLS[name] for name in _HARMLESS}},
    ),
    Attack(
        "capabilities and new privileges",
        """
held = (ctypes.c_uint32 * 6)()
assert libc.capget((ctypes.c_uint32 * 2)(0x20080522, 0), held) == 0
say(held=any(held), privileges=libc.prctl(39, 0, 0, 0, 0) != 1, filter=libc.prctl(21, 0, 0, 0, 0) != 2)
""",
        lambda seen: ", ".join(key for key in ("held", "privileges", "filter") if seen.said[key]),
    ),
]
