"""Entry point of `python -m calque`, which `accelerate launch -m calque` needs."""

import os
import sys

try:
    from calque.cli import main

    if __name__ == "__main__":
        if not sys.flags.safe_path and sys.path[0] == os.getcwd() and "--trust-code" not in sys.argv:
            del sys.path[0]  # like the program `calque`, do not import modules of the working directory
        main()
except KeyboardInterrupt:  # interrupted while the command line is imported
    sys.stderr.write("calque: interrupted\n")
    sys.exit(130)
