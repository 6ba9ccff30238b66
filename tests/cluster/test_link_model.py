"""The model of the link on a few hundred walks: with all rules none misses anything, without one of them soon one does.

`python -m tests.cluster.link_model` walks on, and also without the rules that it takes thousands of walks to miss.
"""

import pytest
from tests.cluster.link_model import Walk, walks_until_missed

WALKS = 100


@pytest.mark.slow
@pytest.mark.parametrize("sets_back", [False, True])
def test_walks_with_all_rules_miss_nothing(sets_back: bool) -> None:
    walks = [Walk(seed, sets_back=sets_back) for seed in range(WALKS)]
    for walk in walks:
        walk.run()
    assert sum(walk.cuts for walk in walks) > 5
    assert sum(len(walk.answered) for walk in walks) > 100


@pytest.mark.parametrize(
    "rule",
    [
        "a cut asks what was promised",
        "an epoch has an id",
        "answers that wait for no slave are noted",
        "of an own epoch that comes back the slaves are not known",
    ],
)
def test_walks_without_a_rule_miss_something(rule: str) -> None:
    assert walks_until_missed(rule, WALKS) is not None
