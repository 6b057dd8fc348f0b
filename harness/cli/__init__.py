"""The command line behind ``runner.py``. Nothing here imports torch."""
