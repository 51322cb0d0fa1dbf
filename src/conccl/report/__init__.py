"""How results look: one screen of text, CSV and JSON, one self-contained HTML page, a Perfetto trace.

Reporters take records, and never compute, measure or read traces. The page is a frame (`report.page`) around
sections; a section is a heading and blocks; a block is a record with a partial template. A job that wants a
page builds sections from its records (`report.sections`) and needs no markup of its own.

Names come from other people's traces: every reporter shows them as inert text.
"""
