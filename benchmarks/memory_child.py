"""Measures one case of ``memory.py`` in this process, and prints the bytes."""

import json
import sys

from benchmarks.memory import Case, child

if __name__ == "__main__":
    print(child(Case(**json.loads(sys.argv[1]))))
