"""`python -m calque`, which `accelerate launch -m calque` needs."""

import os
import sys

try:
    from calque.cli import main

    if __name__ == "__main__":
        if not sys.flags.safe_path and sys.path[0] == os.getcwd() and "--trust-code" not in sys.argv:
            del sys.path[0]  # as the program `calque` has it: modules of the working directory are not importable
        main()
except KeyboardInterrupt:  # while the command line itself is imported
    sys.stderr.write("calque: interrupted\n")
    sys.exit(130)
