"""The attacks. Names are those of the table in docs/sandbox.md, two or three to a line there."""

from __future__ import annotations

from attacks import (
    TIGHT,
    Attack,
    above,
    after,
    flood,
    followed,
    killed_in_time,
    processes,
    told,
    total_memory,
)

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

ATTACKS = [
    # -- what it may use ----------------------------------------------------------------------------------------------
    Attack(
        "fork bomb",
        """
pids = children(100, lambda: time.sleep(20))
time.sleep(0.05)
pids = alive(pids)
say(count=len(pids))
end(pids)
""",
        above("count", processes, "processes"),
    ),
    Attack(
        "thread bomb",
        """
import threading
count = 0
threading.stack_size(65536)
for _ in range(100):
    try:
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
    except RuntimeError:
        break
    count += 1
say(count=count)
os._exit(0)
""",
        above("count", processes, "threads"),
    ),
    Attack(
        "much memory in one process",
        "say(had=0)\nsay(had=len(touched(128 << 20)) >> 20)\n",
        above("had", lambda seen: TIGHT.memory_mb * 1.1, "MiB"),
    ),
    Attack(
        "much memory in many processes",
        """
read, write = os.pipe()
def eat():
    block = touched(30 << 20)
    os.write(write, b"%d " % os.getpid())
    time.sleep(20)
pids = children(8, eat)
time.sleep(1.0)
pids = alive(pids)
os.write(write, b"0")
ready = set(map(int, os.read(read, 4096).split()))
say(had=30 * len(ready & set(pids)))
end(pids)
""",
        above("had", total_memory, "MiB"),
        control=False,  # on unsafe-process there is no bound to be above
    ),
    Attack(
        "a large file",
        """
done = 0
with open("large", "wb", 0) as file:
    try:
        while done < 40:
            done += file.write(bytes(1 << 20)) / (1 << 20)
    except OSError:
        pass
say(mb=done)
""",
        above("mb", lambda seen: TIGHT.disk_mb, "MiB"),
    ),
    Attack(
        "many large files",
        """
done = 0
for at in range(10):
    try:
        with open(f"large{at}", "wb", 0) as file:
            for _ in range(4):
                done += file.write(bytes(1 << 20)) / (1 << 20)
    except OSError:
        break
say(mb=done)
""",
        above("mb", lambda seen: TIGHT.disk_mb, "MiB"),
    ),
    Attack(
        "shared memory",
        """
done = 0
name = "/dev/shm/turnwise-attack-" + G["secret"]
try:
    with open(name, "wb", 0) as file:
        while done < 40:
            done += file.write(bytes(1 << 20)) / (1 << 20)
except OSError:
    pass
tries(lambda: os.unlink(name))
say(mb=done)
""",
        above("mb", lambda seen: TIGHT.disk_mb, "MiB"),
    ),
    Attack(
        "many files",
        """
count = 0
for at in range(1000):
    try:
        os.close(os.open(f"file{at}", os.O_CREAT | os.O_WRONLY))
    except OSError:
        break
    count += 1
say(count=count)
""",
        above("count", lambda seen: TIGHT.inodes + 8, "files"),
        seconds=20.0,  # a thousand files on a disk that is busy
    ),
    Attack(
        "output without end",
        "while G['floods']:\n    os.write(1, b'x' * 65536)\nos.write(1, b'x' * 1000000)\n",
        flood("stdout"),
    ),
    Attack(
        "binary errors without end",
        "while G['floods']:\n    os.write(2, os.urandom(65536))\nos.write(2, os.urandom(1000000))\n",
        flood("stderr"),
    ),
    Attack("sleep without end", "time.sleep(G['long'])\n", killed_in_time, seconds=0.4),
    Attack(
        "work without end",
        "stop = time.time() + G['long']\nwhile time.time() < stop:\n    pass\n",
        killed_in_time,
        seconds=0.4,
    ),
    Attack(
        "ignore all signals",
        """
for number in range(1, 64):
    tries(lambda: signal.signal(number, signal.SIG_IGN) and None)
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))
stop = time.time() + G["long"]
while time.time() < stop:
    time.sleep(0.1)
""",
        killed_in_time,
        seconds=0.4,
    ),
    Attack(
        "a helper holds the output",
        "children(1, lambda: time.sleep(G['long']))\nsay(left=True)\n",
        lambda seen: f"{seen.after['took']:.1f} s" if seen.after["took"] > seen.after["patience"] + 2 else "",
        seconds=5.0,
        control=False,  # every backend reads to the end of the program, not of the pipe
    ),
    # -- what it may see and touch ------------------------------------------------------------------------------------
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
    # -- what it may do to the sandbox ---------------------------------------------------------------------------------
    Attack(
        "spend the memory of what supervises it",
        """
def fill(folder):
    for at in range(100):
        with open(f"{folder}/fill{at}", "wb", 0) as file:
            file.write(bytes(1 << 20))
for folder in (".", os.environ["TMPDIR"], "/dev/shm"):
    tries(lambda: fill(folder) and None)
if not G["floods"]:  # the control fills no disk of the machine
    os.kill(os.getppid(), signal.SIGKILL)
def eat():
    held = []
    while True:
        try:
            held.append(touched(1 << 20))
        except MemoryError:
            time.sleep(0.01)
pids = children(12, eat)
time.sleep(1.0)
say(done=True)
end(pids)
""",
        lambda seen: "",  # the supervisor's end is a fault
        control=False,
    ),
    Attack(
        "kill what supervises it",
        """
for pid in {os.getppid(), 1} - {0, os.getpid()}:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if pid != 1 or G["may_kill_first"]:
            tries(lambda: os.kill(pid, number))
say(done=True)
""",
        lambda seen: "" if seen.said["done"] else "it was stopped",  # the supervisor's end is a fault
    ),
    Attack(
        "stop what supervises it",
        """
if os.getppid() > 1 or G["may_kill_first"]:
    tries(lambda: os.kill(os.getppid() or 1, signal.SIGSTOP))
say(done=True)
""",
        lambda seen: "" if seen.said["done"] else "it was stopped",
        control_seconds=0.5,
    ),
    Attack(
        "look into what supervises it",
        """
found = []
for pid in {1, os.getppid()} - {0}:
    for name in ("mem", "maps", "environ", "fd", "root", "cwd"):
        path = f"/proc/{pid}/{name}"
        if tries(lambda: os.listdir(path) if name in ("fd", "root", "cwd") else open(path, "rb").read(1)):
            found.append(path)
say(found=found)
""",
        lambda seen: f"open: {seen.said['found']}" if seen.said["found"] else "",
    ),
    Attack(
        "forge its result",
        """
header = {"exit_code": 0, "signal": None, "timeout": False, "flooded": False, "stray": False, "wall": 0, "cpu": 0,
          "rss": 0, "events": {"oom": 0, "refused": 0, "peak": 0}, "names": [], "deleted": [], "skipped": []}
text = json.dumps({**header, "blobs": [4, 0]}).encode()
body = len(text).to_bytes(8, "big") + text + b"FAKE"
message = len(body).to_bytes(8, "big") + body
say(wrote=sum(tries(lambda: os.write(number, message)) for number in range(3, 1024)))
os._exit(7)
""",
        lambda seen: "" if seen.result.exit_code == 7 and not seen.said["wrote"] else "something took it",
        control=False,  # unsafe-process closes what is not the program's, too
    ),
    Attack(
        "files that lead elsewhere",
        """
os.symlink(G["file"], "link.txt")
os.symlink(os.path.dirname(G["file"]), "folder")
tries(lambda: os.mkfifo("answer.txt"))
tries(lambda: os.link(G["file"], "hard.txt"))
deep = "."
for _ in range(60):
    deep += "/d"
    tries(lambda: os.mkdir(deep))
tries(lambda: open(deep + "/x", "w").close())
open("fine.txt", "w").write("fine")
os.mkdir("closed")
open("closed/x", "w").close()
tries(lambda: os.chmod("closed", 0))
say(done=True)
""",
        followed,
        control=False,  # the reader that follows, in test_files.py, is its control
    ),
]
