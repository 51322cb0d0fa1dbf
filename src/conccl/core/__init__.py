"""The nouns and formulas that everything else is built from.

Ops say what is run, hardware what it runs on, a plan what runs where and after what, a timeline what
happened, a measurement what it took, metrics what that means. This floor needs the standard library and
numpy, imports nothing above it, runs nothing and prints nothing.
"""
