"""Entry point for `python -m calque`, which is also used by `accelerate launch -m calque`."""

import os
import sys

try:
    from calque.cli import main

    if __name__ == "__main__":
        if (
            not sys.flags.safe_path
            and sys.path[0] == os.getcwd()
            and "--trust-code" not in sys.argv
        ):
            del sys.path[
                0
            ]  # like the `calque` script, import no modules from the working directory
        main()
except KeyboardInterrupt:  # interrupted while `calque.cli` is being imported
    if sys.stderr is not None:  # closed by `2>&-`
        sys.stderr.write("calque: interrupted\n")
    sys.exit(130)
