"""``python -m memlab``: the command line where no script is installed."""

from memlab.cli import main

if __name__ == "__main__":
    main(prog_name="memlab")
