"""More programs against a wall: what is hidden, what is written, names and paths. They run as `attacks` do.

Each says ``did`` (whether it got through) and ``tried`` (that the attempt was made). Where its control on
unsafe-process is left out, a wall is not what stops it there, or the machine itself would be changed.
"""

from __future__ import annotations

from typing import Any

from attacks import Attack, Judge, Seen, told

from agent_envs.code.sandbox import Status


def attempt(name: str, program: str, what: str = "it did", *, control: bool = True, **more: Any) -> Attack:
    """A program that says whether it got through."""
    return Attack(name, program + "\nsay(did=bool(did), tried=True)\n", told("did", what), control=control, **more)


def bounded(seen: Seen) -> str:
    """Of what comes back: no more than was allowed, nothing of the host, and no name that leads out of the folder."""
    files, names = seen.result.files, [*seen.result.files, *seen.result.skipped, *seen.result.deleted]
    if sum(map(len, files.values())) > seen.limits.collected_kb << 10:
        return "more bytes came back than may"
    if sum(len(name.encode()) for name in files) > 1 << 20 or len(seen.result.skipped) > 100:
        return "more names came back than may"
    if any(name.startswith("/") or ".." in name.split("/") for name in names):
        return "a name leads out of the folder"
    if any(seen.after["secret"].encode() in data for data in files.values()):
        return "the host followed it"
    return ""


def left(name: str, program: str, judge: Judge = bounded) -> Attack:
    """A program that leaves files for the host to take out; it may be killed for their number."""

    def judged(seen: Seen) -> str:
        killed = seen.capabilities.backend == "landlock" and seen.result.signal == 9
        assert seen.said.get("tried") or killed, (seen.result.status, seen.result.stderr[-200:])
        return judge(seen)

    return Attack(name, program + "\nsay(tried=True)\n", judged, control=False)


READING = [
    attempt(
        "settings of the machine",
        """
paths = ("/etc/nsswitch.conf", "/etc/fstab", "/etc/login.defs", "/etc/shadow", "/etc/ssh/sshd_config")
did = any([tries(lambda: open(path).read(1) != "") for path in paths])""",
    ),
    attempt(
        "a way up from the working directory",
        """
paths = [top + "../" * 12 + G["file"] for top in ("./", "/proc/self/cwd/", "/proc/self/root/", "/dev/shm/", "/tmp/")]
did = any([tries(lambda: G["secret"] in open(path).read()) for path in paths])""",
    ),
    attempt(
        "a file through a descriptor of its folder",
        """
folder = os.open(os.path.dirname(G["file"]), os.O_PATH) if tries(lambda: os.stat(os.path.dirname(G["file"]))) else -1
did = tries(lambda: G["secret"] in open(os.open(G["name"], os.O_RDONLY, dir_fd=folder)).read())
did = did or tries(lambda: G["secret"] in open(f"/proc/self/fd/{folder}/{G['name']}").read())""",
    ),
    attempt(
        "a file through a symbolic link",
        """
os.symlink(G["file"], "way")
os.symlink(os.path.dirname(G["file"]), "folder")
did = any([tries(lambda: G["secret"] in open(path).read()) for path in ("way", "folder/" + G["name"])])""",
    ),
    attempt(
        "a file through a hard link",
        """
did = tries(lambda: os.link(G["file"], "way")) and tries(lambda: G["secret"] in open("way").read())""",
    ),
    Attack(
        "another program that reads for it",
        "say(tried=True)\nos.execv('/bin/cat', ['cat', G['file']])\n",
        lambda seen: "it was printed" if seen.after["secret"].encode() in seen.result.stdout else "",
    ),
    attempt(
        "folders of users and of the system",
        """
way = {"var", "log", *sys.base_prefix.split("/")}  # to Python, which is there
folders = ("/root", "/home", "/var", "/var/log", "/opt", "/srv", "/boot")
did = [path for path in folders if tries(lambda: bool(set(os.listdir(path)) - way))]""",
    ),
    attempt(
        "processes of the host in /proc",
        """
did = tries(lambda: str(G["victim"]) in os.listdir("/proc"))
for name in ("cmdline", "status", "stat", "maps", "environ", "cwd"):
    did = did or tries(lambda: open(f"/proc/{G['victim']}/{name}", "rb").read(1))""",
    ),
    attempt(
        "the kernel and its devices in /sys",
        """
did = any([tries(lambda: os.listdir(path) != []) for path in ("/sys/class/net", "/sys/fs/cgroup", "/sys/kernel")])""",
    ),
    attempt(
        "the kernel's memory and log",
        """
did = any([tries(lambda: open(path, "rb").read(8)) for path in ("/dev/mem", "/proc/kcore", "/dev/port")])
buffer = ctypes.create_string_buffer(4096)
did = did or libc.syscall(103, 3, buffer, 4096) > 0""",
        control=False,
    ),
    attempt(
        "devices that need no rights",
        """
paths = ("/dev/ptmx", "/dev/fuse", "/dev/net/tun", "/dev/kvm", "/dev/loop-control", "/dev/tty", "/dev/kmsg", "/dev/vda")
did = [path for path in paths if tries(lambda: os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK)))]""",
    ),
    attempt("a terminal of its own", "did = tries(lambda: os.openpty())"),
    attempt(
        "the package, looked for everywhere",
        """
did = any(part == "agent_envs" for name in sys.modules for part in name.split("."))
for top in {sys.prefix, sys.base_prefix, "/usr", "/opt", "/home", "/root"}:
    for where, folders, files in os.walk(top):
        did = did or ("agent_envs" in folders and tries(lambda: os.listdir(where + "/agent_envs/code/tasks") != []))
        folders[:] = [name for name in folders if "packages" in name or where.count("/") < 4]""",
        control=False,
    ),
]
WRITING = [
    attempt(
        "the standard library, to be loaded by the next run",
        """
did = any([tries(lambda: open(path, "r+").close()) for path in (os.__file__, json.__file__, sys.executable)])""",
    ),
    attempt(
        "files among those of the system",
        """
did = False
library = os.path.dirname(os.__file__)
for folder in ("/usr/bin", "/usr/lib", "/etc", "/var/tmp", "/run", "/root", "/dev", "/", "/home", library):
    path = f"{folder}/turnwise-{G['abstract']}"
    if tries(lambda: open(path, "w").close()):
        did = True
        os.unlink(path)""",
    ),
    attempt("a device of its own", "did = tries(lambda: os.mknod('device', 0o020666, os.makedev(1, 3)))"),
    attempt(
        "a queue of messages, made as a file",
        """
did = tries(lambda: os.close(os.open("/dev/mqueue/turnwise", os.O_CREAT | os.O_RDWR)))""",
        control=False,
    ),
    attempt(
        "settings of the kernel",
        """
did = False
for where, folders, files in [*os.walk("/proc/sys/kernel"), *os.walk("/proc/sys/vm")]:
    for name in files:
        did = did or tries(lambda: os.close(os.open(where + "/" + name, os.O_WRONLY)))
did = did or tries(lambda: os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY)))""",
    ),
    attempt(
        "the names and the clock of the machine",
        """
did = libc.syscall(170, b"turnwise", 8) == 0 or libc.syscall(171, b"turnwise", 8) == 0
then = (ctypes.c_long * 2)(1, 1)
did = did or libc.syscall(164, None, None) == 0 or libc.syscall(227, 0, ctypes.byref(then)) == 0""",
        control=False,
    ),
    Attack(
        "a core file",
        "say(tried=True)\nos.abort()\n",
        lambda seen: "it is there" if any("core" in name for name in seen.result.files) else "",
        control=False,
    ),
]
NAMES = [
    left(
        "names that are no text",
        r"""
for at in range(100):
    open(b"\xff\xfe%d\xed\xa0\x80" % at, "w").close()
    os.mkdir(b"\x80%d" % at)""",
    ),
    left(
        "names of line ends and control characters",
        r"""
for code in range(1, 32):
    open(f"a{chr(code)}b\x1b[2J\r\n../x{code}".replace("/", "|"), "w").close()
open("\u202egnp.exe", "w").close()""",
    ),
    left(
        "names of four bytes a character",
        r"""
for at in range(240):
    open(chr(0x1f600) * 60 + str(at), "w").close()""",
    ),
    left(
        "names that look like ways",
        r"""
for name in ("...", "..\\x", "~", "-rf", "C:x", "%2e%2e", "..%c0%af", " ", ".. ", "$(id)", "`id`", "a;b", "\\"):
    open(name, "w").write("x")""",
    ),
    left(
        "a file that seems as large as a disk",
        """
with open("large", "wb") as file:
    tries(lambda: file.truncate(1 << 44))
    tries(lambda: file.truncate(7 << 20))""",
    ),
    left(
        "one file under many names",
        """
open("a", "wb").write(bytes(1 << 20))
for at in range(200):
    tries(lambda: os.link("a", f"b{at}"))""",
    ),
    left(
        "folders in folders in folders",
        """
for at in range(5000):
    if not tries(lambda: os.mkdir("d")):
        break
    os.chdir("d")
tries(lambda: open("x", "w").write("x"))""",
    ),
    left(
        "folders without end",
        """
made = 0
while made < 30000 and tries(lambda: os.mkdir(f"d{made}")):
    made += 1""",
    ),
    left(
        "links without end",
        """
open("a", "w").close()
made = 0
while made < 30000 and tries(lambda: os.link("a", f"l{made}")):
    made += 1""",
    ),
    left(
        "large files without end, and none above the limit of one",
        """
done = 0
while done < 60 and tries(lambda: open(f"f{done}", "wb").write(bytes(4 << 20))):
    done += 1""",
    ),
    left(
        "links to themselves, to each other and to devices",
        """
for name, target in (("a", "a"), ("b", "c"), ("c", "b"), ("d", "/dev/zero"), ("e", "/dev/stdin"),
                     ("f", "/proc/self/mem"), ("g", "."), ("h", "/"), ("i", "x" * 4000),
                     ("j", G["file"]), ("k", os.path.dirname(G["file"]))):
    tries(lambda: os.symlink(target, name))""",
    ),
    left(
        "pipes and sockets in place of files",
        """
tries(lambda: os.mkfifo("main.py"))
tries(lambda: os.mkfifo("a.fifo"))
ends = socket.socketpair()
tries(lambda: ends[0].bind("socket"))""",
    ),
    left(
        "files and folders that nobody may read",
        """
os.umask(0o777)
os.mkdir("closed")
open("secret", "w").close()
os.umask(0o577)
tries(lambda: os.mkdir("blind", 0o300))
for at in range(50):
    tries(lambda: open(f"blind/{at}", "w").close())""",
    ),
    left(
        "a folder that is not there any more",
        """
here = os.getcwd()
os.mkdir("a")
os.chdir("a")
os.rmdir("../a")
tries(lambda: open("x", "w"))
tries(lambda: os.rename(here, here + "2"))
tries(lambda: os.rmdir(here))""",
    ),
    left(
        "a file that changes its kind",
        """
for name in ("x", "y"):
    open(name, "w").write("x")
os.unlink("x")
os.mkdir("x")
os.symlink(G["file"], "x/y")
os.rename("x/y", "y")""",
    ),
]


def held_in_output(seen: Seen) -> str:
    return "" if seen.result.status in (Status.OK, Status.ERROR) and seen.said.get("tried") else str(seen.result.status)
