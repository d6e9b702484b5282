"""`python -m calque`, which `accelerate launch -m calque` needs."""

import sys

try:
    from calque.cli import main

    if __name__ == "__main__":
        main()
except KeyboardInterrupt:  # while the command line itself is imported
    sys.stderr.write("calque: interrupted\n")
    sys.exit(130)
