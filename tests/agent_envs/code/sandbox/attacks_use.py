"""What a program may use: processes, memory, disk, output, time."""

from __future__ import annotations

from attacks import TIGHT, Attack, above, flood, killed_in_time, or_killed, processes, total_memory

USE = [
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
        or_killed(above("mb", lambda seen: TIGHT.disk_mb, "MiB")),
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
        or_killed(above("count", lambda seen: TIGHT.inodes + 8, "files")),
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
]
