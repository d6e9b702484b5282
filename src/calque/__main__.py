"""`python -m calque`, which `accelerate launch -m calque` needs."""

from calque.cli import main

if __name__ == "__main__":
    main()
