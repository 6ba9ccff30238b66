"""The benchmark of access control and TLS stays true: it runs, small, and compares each figure with plain ones."""

import pytest
from tests.support.benchmarks import figures


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.long
def test_every_figure_is_compared_for_both_sizes_and_each_protection() -> None:
    lines = figures("access", "--count", 640, "--rounds", 1)
    works = ["send_64", "pipeline", "pull_32", "consume"]
    kinds = ["access", "tls", "access_and_tls"]
    assert [(line["name"], line["size"]) for line in lines] == [
        (f"{kind}.{work}", size) for size in (128, 1024) for work in works for kind in kinds
    ]
    assert all(line["value"] > 0 and line["protected_per_s"] > 0 for line in lines)
