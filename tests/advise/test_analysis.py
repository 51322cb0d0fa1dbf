from __future__ import annotations

import json

from conccl.advise.analysis import Analysis, RulesUsed
from conccl.advise.document import to_document


def empty() -> Analysis:
    return Analysis(
        paths=(),
        device=None,
        rules=RulesUsed(version="1", source="built in", host_copies="copy"),
        step=None,
        world_size=None,
        missing_ranks=(),
        ranks=(),
        clock=None,
        collectives=(),
        contention=(),
        regions=(),
        exposed=(),
        unclassified=(),
        advice=(),
        warnings=(),
    )


def test_an_empty_analysis_has_every_key_of_the_contract() -> None:
    document = json.loads(json.dumps(to_document(empty())))
    assert document["schema"] == "conccl.analyze/1"
    assert document["executor"] == "trace"
    for key in ("ranks", "collectives", "contention", "unclassified", "advice", "warnings"):
        assert document[key] == []


def test_the_line_of_nothing_says_so() -> None:
    assert "no rank" in empty().line()
