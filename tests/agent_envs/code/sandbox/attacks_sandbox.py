"""What a program may do to the sandbox itself."""

from __future__ import annotations

from attacks import Attack, above, followed

SANDBOX = [
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
        "have its supervisor killed for want of memory",
        """
def last():
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("0" if G["floods"] else "1000")
said = tries(last)
if G["floods"]:
    def eat():
        last()
        held = []
        while True:
            held.append(touched(1 << 18))
    pids = children(12, eat)
    time.sleep(1.0)
    end(pids)
say(spared=said)
""",
        # In a container it can; then the supervisor's end by memory is the program's own, and any other one a fault.
        lambda seen: "it chose who is killed" if seen.said["spared"] and seen.capabilities.backend != "docker" else "",
    ),
    Attack(
        "an answer of long names",  # without a wall they are bounded, too: the control is the suite before it was
        """
for _ in range(30):
    os.mkdir("d" * 246)
    os.chdir("d" * 246)
made = 0
for at in range(4000):
    try:
        open(f"{at:05}".rjust(246, "n"), "w").close()
    except OSError:
        break
    made += 1
say(made=made)
""",
        lambda seen: "" if sum(len(name.encode()) for name in seen.result.files) <= 1 << 20 else "all names came back",
        control=False,
    ),
    Attack(
        "record locks, which are memory of the kernel's",
        """
import fcntl
held = 0
with open("locked", "w") as file:
    for at in range(100):
        held += tries(lambda: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * at))
say(held=held)
""",
        above("held", lambda seen: 0, "locks"),
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
