"""`child_main` as on a system where SIGIO is ignored by default."""

import sys

sys.platform = "elsewhere"

import child_main  # noqa: E402

if __name__ == "__main__":
    child_main.main()
