"""What this machine can run, and why not: the front asks child processes, so that no library can take it down.

``machine`` looks without torch, ``probe`` is the child that imports torch or a provider, ``forecast`` says what a
matrix would come to, ``gather`` puts it together, ``render`` and ``schema`` publish it.
"""
