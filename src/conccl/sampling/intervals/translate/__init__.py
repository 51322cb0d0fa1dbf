"""Translators that run a whole program: QEMU with a plugin of ours, valgrind as the slow reference."""
