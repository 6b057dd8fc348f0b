"""FP8 under torch.compile, judged for a whole matrix: ``python runner.py --matrix ci.yaml``. See ``--help``."""

import sys

# What a user of an old Python sees must not be a syntax error, so this file stays readable for it.
if sys.version_info < (3, 10):  # noqa: UP036
    sys.stderr.write("error: Python 3.10 or newer is needed, this is %d.%d\n" % sys.version_info[:2])  # noqa: UP031
    sys.exit(4)


def run() -> int:
    """The exit code of the command line; a missing dependency is a usage error, not a traceback."""
    try:
        from harness.cli.main import main

        return main(sys.argv[1:])
    except ModuleNotFoundError as error:
        if (error.name or "harness").partition(".")[0] in ("harness", "cases"):
            raise
        print(f"error: {error}: run 'make run', or 'pip install -e .' in this environment", file=sys.stderr)
        return 4


if __name__ == "__main__":
    sys.exit(run())
