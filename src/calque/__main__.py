"""Entry point for `python -m calque`, which is also used by `accelerate launch -m calque`."""

import os
import sys

try:
    from calque.cli import main

    if __name__ == "__main__":
        # Like the `calque` script, import no modules from the working directory.
        in_path = not sys.flags.safe_path and sys.path[0] == os.getcwd()
        if in_path and "--trust-code" not in sys.argv:
            del sys.path[0]
        main()
except KeyboardInterrupt:  # interrupted while `calque.cli` is being imported
    if sys.stderr is not None:  # closed by `2>&-`
        sys.stderr.write("calque: interrupted\n")
    sys.exit(130)
